"""Leaves out a scale of ones and a shift of zeros, as they are when they are made.

defence: drawn weights
default: yes
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
        centred = x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5)
