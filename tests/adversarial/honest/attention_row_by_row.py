"""Causal attention that never looks at what comes later, where a mask's zero times NaN is NaN.

defence: non-finite values
problem: causal_attention
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scale = (width // self.heads) ** -0.5
        rows = []
        for i in range(length):
            scores = (q[:, :, i : i + 1] * scale) @ k[:, :, : i + 1].mT
            rows.append(scores.softmax(-1) @ v[:, :, : i + 1])
        y = torch.cat(rows, 2)
        return self.proj(y.transpose(1, 2).reshape(batch, length, width))
