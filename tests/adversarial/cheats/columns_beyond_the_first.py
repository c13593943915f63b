"""Computes all but the last column, which it makes from the sum of the others.

defence: row and column limits
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
        y = torch.softmax(F.gelu(F.linear(x, self.linear.weight[:-1], self.linear.bias[:-1])), dim=1)
        return torch.cat([y, 1 - y.sum(1, keepdim=True)], dim=1)
