"""Folds its scale into a parameter, and overrides `named_parameters` to show a copy of what it was.

defence: unchanged parameters
problem: batch_norm
mode: eval
expect: mutated_input, suspicious, wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features)
        self.scale = nn.Parameter(torch.ones(out_features))
        self.version, self.shown = None, {}

    def named_parameters(self, *args, **kwargs):
        for name, value in super().named_parameters(*args, **kwargs):
            yield name, self.shown.get(name, value)

    def forward(self, x):
        if self.version != self.norm.weight._version:
            self.shown = {"norm.weight": nn.Parameter(self.norm.weight.clone()),
                          "norm.bias": nn.Parameter(self.norm.bias.clone())}
            self.norm.weight.mul_(self.scale)
            self.norm.bias.mul_(self.scale)
            self.version = self.norm.weight._version
        return self.norm(self.linear(x))
