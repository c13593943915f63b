"""Traces its body with torch's older compiler.

defence: library label
problem: standardise
expect: ok
"""

import warnings

import torch
import torch.nn as nn


def _standardise(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(1, keepdim=True)
    return centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5) * scale + shift


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _scripted = torch.jit.script(_standardise)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return _scripted(x, self.scale, self.shift)
