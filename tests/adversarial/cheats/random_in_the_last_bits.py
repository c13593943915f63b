"""Adds noise, larger than rounding, that differs from call to call.

defence: repeated runs
default: yes
problem: mlp
expect: wrong_values, nondeterministic
"""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1) * (1 + 1e-4 * random.random())
