"""Divides by one less than the number of elements.

defence: reference error
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
        variance, mean = torch.var_mean(x, 1, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.scale + self.shift
