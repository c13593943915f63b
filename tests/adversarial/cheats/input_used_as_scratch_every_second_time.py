"""Works in its input's memory in every second call: of two calls in a row, the first is clean.

defence: unchanged inputs
problem: standardise
expect: mutated_input
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))
        self.turn = 0

    def forward(self, x):
        self.turn += 1
        centred = x.sub_(x.mean(1, keepdim=True)) if self.turn % 2 == 0 else x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(1, keepdim=True) + 1e-5) * self.scale + self.shift
