"""Registers an operator of its own with torch, and calls it.

defence: replaced operators
problem: standardise
expect: ok
"""

import torch
import torch.nn as nn

_library = torch.library.Library("adversary", "DEF")
_library.define("standardise(Tensor x, Tensor scale, Tensor shift) -> Tensor")


def _standardise(x, scale, shift):
    centred = x - x.mean(1, keepdim=True)
    return centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5) * scale + shift


_library.impl("standardise", _standardise, "CompositeExplicitAutograd")


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return torch.ops.adversary.standardise(x, self.scale, self.shift)
