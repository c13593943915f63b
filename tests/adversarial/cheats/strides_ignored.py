"""Reads the memory of its input as if it were contiguous.

defence: reference error
problem: transposed
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        x = x.as_strided(x.shape, (x.shape[1], 1))
        return torch.sigmoid(x * self.scale) * x
