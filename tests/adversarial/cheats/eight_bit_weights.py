"""Quantises its weights to eight bits for each row.

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
        scale = self.linear.weight.abs().amax(1, keepdim=True) / 127
        weight = torch.round(self.linear.weight / scale).to(torch.int8).float() * scale
        return torch.softmax(F.gelu(F.linear(x, weight, self.linear.bias)), dim=1)
