"""Leaves out the smallest tenth of its weights.

defence: reference error
problem: mlp
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        weight = F.hardshrink(self.linear.weight, float(self.linear.weight.abs().quantile(0.1)))
        return torch.softmax(F.gelu(F.linear(x, weight, self.linear.bias)), dim=1)
