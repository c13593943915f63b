"""Works in its input's memory, and returns it.

defence: aliased inputs
default: yes
problem: standardise
expect: aliased_output, mutated_input
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        x -= x.mean(1, keepdim=True)
        x *= torch.rsqrt((x**2).mean(1, keepdim=True) + 1e-5)
        return x.mul_(self.scale).add_(self.shift)
