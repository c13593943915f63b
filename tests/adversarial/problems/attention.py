"""Scaled dot product attention with every key, and a causal one; one of them with a mask."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
heads = 4
length = 48
width = 16


class Model(nn.Module):
    def forward(self, query, key, value, mask):
        masked = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return masked, F.scaled_dot_product_attention(query, key, value, is_causal=True)


def get_inputs():
    rows = [torch.randn(batch_size, heads, length, width) for _ in range(3)]
    return [*rows, torch.rand(batch_size, 1, length, length) > 0.3]


def get_init_inputs():
    return []
