"""Goes row by row, in Python: slower than PyTorch by far.

defence: parent's clock
default: yes
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

    def row(self, x):
        centred = x - x.mean()
        return centred * torch.rsqrt((centred**2).mean() + 1e-5) * self.scale + self.shift

    def forward(self, x):
        return torch.stack([self.row(x[i]) for i in range(x.shape[0])])
