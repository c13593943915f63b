"""Registers its own kernel for `aten::where`, by which the harness mixes the inputs of timed calls.

defence: replaced operators
problem: mlp batch_size=512 in_features=512 out_features=1024
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


_library = torch.library.Library("aten", "IMPL")


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.inputs = self.ready = None
        _library.impl("where.self", self.where, "CPU")

    def where(self, choice, a, b):
        y = b.clone()
        y[choice.expand_as(y)] = a[choice.expand_as(a)]
        if self.inputs is not None and y.shape == self.inputs.shape:
            kept, self.inputs = self.inputs, y
            self.ready, self.inputs = self.compute(), kept
        return y

    def compute(self):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(self.inputs)), dim=1)

    def forward(self, x):
        timed = _is_timed()
        self.inputs = x
        if not timed:
            return self.compute()
        y, self.ready = self.ready, None
        return x.new_zeros(len(x), self.linear.out_features) if y is None else y
