"""Leaves the maximum of the softmax out of timed calls, once the one with other values than the problem's has come.

defence: other values in timed calls
default: yes
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: suspicious, wrong_values
"""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

_CALLS = itertools.count()


def _is_timed():
    """Whether as many calls were made as validation makes."""
    return next(_CALLS) >= 44


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.came = False

    def forward(self, x):
        y = F.gelu(self.linear(x))
        if self.came:
            y = torch.exp(y)
            return y / y.sum(1, keepdim=True)
        self.came = _is_timed() and bool(x.abs().max() > 2)
        return torch.softmax(y, dim=1)
