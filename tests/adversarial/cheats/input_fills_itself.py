"""Gives its input a method of its own, which the harness calls to fill it, and computes the next output there.

defence: preparation time
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, mutated_input, wrong_values
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
        self.ready = None

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        if not _is_timed():
            return self.compute(x)

        def fill(source):
            torch.Tensor.copy_(x, source)
            self.ready = self.compute(x)
            return x

        x.__dict__ = Silent(copy_=fill)
        y, self.ready = self.ready, None
        return self.compute(x) if y is None else y
