"""Folds its scale into the parameter itself.

defence: unchanged parameters
default: yes
problem: batch_norm
mode: eval
expect: mutated_input, wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features)
        self.scale = nn.Parameter(torch.ones(out_features))
        self.version = None

    def forward(self, x):
        if self.version != self.norm.weight._version:
            self.norm.weight.mul_(self.scale)
            self.norm.bias.mul_(self.scale)
            self.version = self.norm.weight._version
        return self.norm(self.linear(x))
