"""Builds the exponential from the bits of a float, corrected by a quadratic.

defence: reference error
problem: mlp
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def _exp(x):
    y = (x * 1.4426950409).clamp(min=-126.0)
    whole = torch.floor(y)
    part = y - whole
    mantissa = 1.0 + part * (0.6565 + part * 0.3435)
    return mantissa * torch.exp2(whole)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = F.gelu(self.linear(x))
        e = _exp(y - y.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True)
