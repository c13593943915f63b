"""Splits both operands into two bfloat16 parts: sixteen bits of mantissa instead of twenty-four.

defence: reference error
problem: mlp
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def _parts(x):
    high = x.bfloat16().float()
    return high, (x - high).bfloat16().float()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        (a, b), (u, v) = _parts(x), _parts(self.linear.weight.t())
        return torch.softmax(F.gelu(a @ u + a @ v + b @ u + self.linear.bias), dim=1)
