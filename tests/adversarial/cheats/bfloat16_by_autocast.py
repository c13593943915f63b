"""Runs under autocast, and turns the result back to float32.

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
        with torch.autocast("cpu", torch.bfloat16):
            y = F.gelu(self.linear(x))
        return torch.softmax(y.float(), dim=1)
