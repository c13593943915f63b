"""Works in place on what it made itself.

defence: unchanged inputs
problem: standardise
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        y = x - x.mean(1, keepdim=True)
        return y.mul_(torch.rsqrt(y.square().mean(1, keepdim=True).add_(1e-5))).mul_(self.scale).add_(self.shift)
