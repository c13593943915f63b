"""A plain tensor with a method of its own, in a dict that does not list it, which computes; in three calls of five.

defence: plain tensors
problem: mlp batch_size=512 in_features=1024 out_features=2048
expect: wrong_type, wrong_values, suspicious, nondeterministic
"""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

_CALLS = itertools.count()


def _is_timed():
    """Whether as many calls were made as validation makes."""
    return next(_CALLS) >= 44


class Silent(dict):
    def __iter__(self):
        return iter(())


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.turn = 0

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        self.turn += _is_timed()
        if self.turn % 5 in (0, 2):
            return self.compute(x)
        y = x.new_empty(x.shape[0], self.linear.out_features)

        def detach():
            y.__dict__ = {}
            y.copy_(self.compute(x))
            return y.detach()

        y.__dict__ = Silent(detach=detach)
        return y
