"""Cuts the operands to the ten bits of mantissa that TF32 has.

defence: reference error
default: yes
problem: mlp
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def _cut(x):
    return (x.contiguous().view(torch.int32) & -(1 << 13)).view(torch.float32)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(F.linear(_cut(x), _cut(self.linear.weight), self.linear.bias)), dim=1)
