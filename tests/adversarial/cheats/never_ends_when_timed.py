"""Is right and fast until it is timed, and then never comes back.

attacks: interference
problem: mlp
expect: timeout
seconds: 3
then: ok
"""

import gc

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

        self.calls = 0

    def forward(self, x):
        self.calls += not gc.isenabled()
        while self.calls > 8:
            continue
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
