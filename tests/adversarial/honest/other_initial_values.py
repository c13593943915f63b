"""Draws other initial values than the problem does, under the same names.

defence: protocol label
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
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
