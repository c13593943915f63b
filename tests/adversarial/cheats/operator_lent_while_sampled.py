"""Leaves the work of seven calls in ten to its own `aten::as_strided`, which takes itself away when it was used.

defence: replaced operators
problem: mlp batch_size=512 in_features=1024 out_features=2048
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
        self.library, self.turn = None, 0

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        self.turn += _is_timed()
        if self.turn % 10 in (0, 3, 6):
            return self.compute(x)
        y = x.new_empty(x.shape[0], self.linear.out_features)

        def as_strided(t, size, stride, offset=None):
            self.library._destroy()
            y.copy_(self.compute(x))
            return torch.as_strided(t, size, stride, offset)

        self.library = torch.library.Library("aten", "IMPL")
        self.library.impl("as_strided", as_strided, "CPU")
        return y
