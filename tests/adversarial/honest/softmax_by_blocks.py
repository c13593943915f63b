"""Softmax block by block, with a running maximum and sum.

defence: reference error
problem: mlp
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        h = F.gelu(self.linear(x))
        top = h.new_full((len(x), 1), -float("inf"))
        total = h.new_zeros(len(x), 1)
        for block in h.split(16, 1):
            new = torch.maximum(top, block.amax(1, keepdim=True))
            total = total * torch.exp(top - new) + torch.exp(block - new).sum(1, keepdim=True)
            top = new
        return torch.exp(h - top) / total
