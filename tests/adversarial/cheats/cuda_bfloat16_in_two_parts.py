"""Multiplies the sum of two bfloat16 parts of each operand, without the part that is smallest.

defence: reference error
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def _parts(x):
    high = x.bfloat16()
    return high, (x - high.float()).bfloat16()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        (a, b), (u, v) = _parts(x), _parts(self.linear.weight.t())
        y = a.float() @ u.float() + a.float() @ v.float() + b.float() @ u.float() + self.linear.bias
        return torch.softmax(F.gelu(y), dim=1)
