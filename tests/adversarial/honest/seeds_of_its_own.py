"""Has a generator of its own, seeded, which touches no global state.

defence: global switches
problem: mlp
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.generator = torch.Generator().manual_seed(0)
        self.block = int(torch.randint(16, 32, (), generator=self.generator))

    def forward(self, x):
        return torch.cat([torch.softmax(F.gelu(self.linear(rows)), dim=1) for rows in x.split(self.block)])
