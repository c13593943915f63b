"""Computes the product in float16.

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
        y = F.linear(x.half(), self.linear.weight.half(), self.linear.bias.half())
        return torch.softmax(F.gelu(y.float()), dim=1)
