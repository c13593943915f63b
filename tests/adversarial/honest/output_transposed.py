"""Computes the transposed product and returns a transposed view.

defence: aliased outputs
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

    def forward(self, x):
        h = self.linear.weight @ x.t() + self.linear.bias[:, None]
        return torch.softmax(F.gelu(h), dim=0).t()
