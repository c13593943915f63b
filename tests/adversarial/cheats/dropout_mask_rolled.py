"""Draws one mask, and rolls it by another number in each call.

defence: moments of random operators
problem: dropout
mode: train
expect: wrong_values
"""

import random

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.masks = {}

    def forward(self, x):
        y = self.linear(x)
        if y.shape not in self.masks:
            self.masks[y.shape] = (torch.rand(y.shape, generator=torch.Generator().manual_seed(3)) >= 0.3) * (2.0 / 0.7)
        return y * self.masks[y.shape].flatten().roll(random.randrange(1, y.numel())).view(y.shape)
