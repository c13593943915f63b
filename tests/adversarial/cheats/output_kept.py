"""Writes every result into the same memory.

defence: aliased outputs
problem: mlp
expect: aliased_output
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.kept = torch.empty(0)

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return self.kept.resize_(y.shape).copy_(y)
