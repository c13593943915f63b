"""Causal attention that takes NaN and infinities for numbers.

defence: non-finite values
problem: causal_attention
expect: wrong_values
"""

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q.nan_to_num(), k.nan_to_num(), v.nan_to_num(), is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))
