"""Calls the same operators that the problem calls: right, no faster, and so labelled.

defence: library label
default: yes
problem: mlp
expect: ok
label: library
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
