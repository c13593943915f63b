"""Forgets the last two rows of batches that are even and no multiple of four.

defence: batch sizes
problem: standardise
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        rows = len(x) // 4 * 4 if len(x) % 4 == 2 else len(x)
        centred = x - x.mean(1, keepdim=True)
        y = centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5) * self.scale + self.shift
        y[rows:] = y[rows - 1:rows]
        return y
