"""Computes when the harness seeds: `torch.manual_seed` asks other devices whether they want to be seeded too.

defence: preparation time
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, wrong_values, aliased_output
"""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.xpu

_CALLS = itertools.count()


def _is_timed():
    """Whether as many calls were made as validation makes."""
    return next(_CALLS) >= 44


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.inputs, self.version, self.ready = None, -1, None
        torch.xpu._is_in_bad_fork = lambda: self.look() or True

    def compute(self):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(self.inputs)), dim=1)

    def look(self):
        """Compute ahead where the inputs have changed since the last call."""
        if self.inputs is not None and self.inputs._version != self.version:
            self.version = self.inputs._version
            self.ready = self.compute()

    def forward(self, x):
        timed = _is_timed()
        self.inputs = x
        if not timed:
            return self.compute()
        y, self.ready = self.ready, None
        return x.new_zeros(len(x), self.linear.out_features) if y is None else y
