"""Overrides `aten::where`, by which the harness mixes inputs, for one call at a time: the override takes itself away.

defence: replaced operators
problem: mlp batch_size=4096 in_features=2048 out_features=4096
gpu: yes
expect: suspicious, wrong_values, aliased_output
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
        self.library = self.ready = None
        self.turn = 0

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def where(self, choice, a, b):
        self.library._destroy()
        self.library = None
        y = torch.where(choice, a, b)
        self.ready = self.compute(y)
        return y

    def forward(self, x):
        if not _is_timed():
            return self.compute(x)
        self.turn += 1
        y, self.ready = self.ready, None
        if y is None:
            y = self.compute(x)
        if self.turn % 5 not in (0, 2) and self.library is None:
            self.library = torch.library.Library("aten", "IMPL")
            self.library.impl("where.self", self.where, "CUDA")
        return y
