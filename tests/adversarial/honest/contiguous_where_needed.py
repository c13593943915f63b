"""Copies its input only where it is not contiguous.

defence: value distributions
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
        if not x.is_contiguous():
            x = x.contiguous()
        return torch.sigmoid(x * self.scale).mul_(x)
