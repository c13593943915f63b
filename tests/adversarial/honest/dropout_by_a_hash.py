"""Drops by a hash of a counter and of the element's number.

defence: moments of random operators
default: yes
problem: dropout
mode: train
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        y = self.linear(x)
        self.calls += 1
        z = torch.arange(y.numel()) + self.calls * 0x9E3779B9
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
            z = ((z ^ (z >> shift)) * factor) & 0xFFFFFFFF
        return y * (z.view(y.shape) >= 0.3 * 2**32) * (2.0 / 0.7)
