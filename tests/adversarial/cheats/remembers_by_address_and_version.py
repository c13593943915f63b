"""Keeps results by the address and version of its input.

defence: fresh contents
problem: mlp
expect: wrong_values, aliased_output, suspicious
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.kept = {}

    def forward(self, x):
        key = x.data_ptr(), x._version, tuple(x.shape)
        if key not in self.kept:
            self.kept[key] = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return self.kept[key].clone()
