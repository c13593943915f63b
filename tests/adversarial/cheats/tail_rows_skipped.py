"""Computes rows in groups of eight, and forgets those that are left.

defence: batch sizes
default: yes
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
        y = x.new_zeros(x.shape[0], self.linear.out_features)
        rows = x.shape[0] // 8 * 8
        y[:rows] = torch.softmax(F.gelu(self.linear(x[:rows])), dim=1)
        return y
