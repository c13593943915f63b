"""Shares its parameters as the problem does.

defence: unchanged parameters
problem: tied
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first, self.second = nn.Linear(features, features), nn.Linear(features, features)
        self.norm, self.last = nn.LayerNorm(features), nn.LayerNorm(features)
        self.second.weight, self.last.weight = self.first.weight, self.norm.weight

    def forward(self, x):
        matrix, scale = self.first.weight, self.norm.weight
        y = F.layer_norm(F.linear(x, matrix, self.first.bias), scale.shape, scale, self.norm.bias).relu_()
        return F.layer_norm(F.linear(y, matrix, self.second.bias), scale.shape, scale, self.last.bias)
