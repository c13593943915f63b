"""Enters autocast and never leaves it.

defence: global switches
problem: mlp
expect: suspicious, wrong_values, wrong_type
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.autocast("cpu", torch.bfloat16).__enter__()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
