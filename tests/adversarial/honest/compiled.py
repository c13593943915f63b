"""Leaves everything to torch.compile.

attacks: a wrapper that only calls the library
problem: standardise
expect: ok
"""

import torch
import torch.nn as nn


@torch.compile(dynamic=True)
def _standardise(x, scale, shift):
    centred = x - x.mean(1, keepdim=True)
    return centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5) * scale + shift


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return _standardise(x, self.scale, self.shift)
