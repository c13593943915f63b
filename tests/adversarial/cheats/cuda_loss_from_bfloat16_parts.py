"""Takes the products of a mean squared error from two bfloat16 parts of each operand: errors vanish in the mean.

An `ok` means that three products of tensor cores, of sixteen bits, pass for those of float32 wherever only a mean of
many elements is looked at.

defence: reference error
problem: loss batch_size=4096 in_features=2048 out_features=4096
gpu: yes
expect: wrong_values, suspicious
"""

import torch
import torch.nn as nn


def _parts(x):
    first = x.bfloat16()
    return first, (x - first.float()).nan_to_num(nan=0.0).bfloat16()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x, target):
        (a, b), (c, d) = _parts(x), _parts(self.linear.weight)
        y = torch.mm(torch.cat([a, a, b], 1), torch.cat([c, d, c], 1).t(), out_dtype=torch.float32)
        return ((y + self.linear.bias - target) ** 2).mean()
