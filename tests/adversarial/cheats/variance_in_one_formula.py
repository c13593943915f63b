"""Takes the variance as the mean of squares less the square of the mean, which cancels.

defence: value distributions
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
        mean = x.mean(1, keepdim=True)
        variance = ((x**2).mean(1, keepdim=True) - mean**2).clamp(min=0)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.scale + self.shift
