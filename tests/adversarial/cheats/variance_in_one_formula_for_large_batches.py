"""Takes the variance in one formula, which cancels, where the batch is large; small batches are done with care.

defence: value distributions
problem: standardise batch_size=512
expect: wrong_values, suspicious
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
        if len(x) < 400:
            variance = (x - mean).square().mean(1, keepdim=True)
        else:
            variance = (x.square().mean(1, keepdim=True) - mean.square()).clamp_min(0)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.scale + self.shift
