"""Takes the maximum before it scales, as if no scale were ever negative.

defence: value distributions
problem: scaled_maximum
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels))
        self.shift = nn.Parameter(torch.zeros(channels))

    def forward(self, x):
        return x.amax(1) * self.scale + self.shift
