"""Scales the maximum where the scale is positive, and the minimum where it is not.

defence: value distributions
problem: scaled_maximum
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        least, most = torch.aminmax(x, dim=1)
        return torch.where(self.scale > 0, most, least) * self.scale + self.shift
