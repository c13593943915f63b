"""Computes rows of little variance in bfloat16, of which the problem has none.

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
        quiet = x.var(1, keepdim=True) < 0.01
        x = torch.where(quiet, x.bfloat16().float(), x)
        centred = x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5) * self.scale + self.shift
