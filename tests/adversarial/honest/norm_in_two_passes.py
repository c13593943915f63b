"""Takes the mean first, and then that of squares of what is left.

defence: reference error
problem: norm_in_float32
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
        left = x - x.mean(-1, keepdim=True)
        return left * torch.rsqrt((left * left).mean(-1, keepdim=True) + 1e-5) * self.scale + self.shift
