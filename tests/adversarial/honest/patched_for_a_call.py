"""Patches a library function for the length of a call, and puts it back; draws under a forked generator.

defence: replaced names
default: yes
problem: mlp
expect: ok
"""

from unittest import mock

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        with mock.patch.object(F, "gelu", lambda x: 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))):
            with torch.random.fork_rng():
                torch.manual_seed(3)
                return torch.softmax(F.gelu(self.linear(x)), dim=1)
