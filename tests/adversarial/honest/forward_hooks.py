"""Does the second half of its work in a forward hook, and checks its input in another.

defence: replaced names
problem: mlp
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


def _check(module, inputs):
    if inputs[0].ndim != 2:
        raise ValueError("one row for each sample, please")


def _tail(module, inputs, y):
    return torch.softmax(F.gelu(y), dim=1)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.linear.register_forward_pre_hook(_check)
        self.linear.register_forward_hook(_tail)

    def forward(self, x):
        return self.linear(x)
