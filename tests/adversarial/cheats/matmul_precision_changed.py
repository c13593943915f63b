"""Allows products of lower precision, for good.

defence: global switches
problem: mlp
expect: suspicious, wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_float32_matmul_precision("medium")


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
