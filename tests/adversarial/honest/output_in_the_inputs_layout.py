"""Keeps the strides of its non-contiguous input in its output.

defence: aliased outputs
problem: transposed
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        y = torch.empty_like(x)
        torch.mul(x, self.scale, out=y)
        return y.sigmoid_().mul_(x)
