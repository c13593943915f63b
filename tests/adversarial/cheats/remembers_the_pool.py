"""Finds the harness's pool of inputs, and computes all outputs of all sets before the first timed call.

It raises where it finds none, or none of which a timed call is made.

defence: preparation time
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, runtime_error
"""

import gc

import torch
import torch.nn as nn
import torch.nn.functional as F

_calls = {}


def _timed(x):
    """Whether the full batch, which comes first, has come more often than validation asks for it."""
    _calls[x.shape[0]] = _calls.get(x.shape[0], 0) + 1
    return x.shape[0] == next(iter(_calls)) and _calls[x.shape[0]] > 6


def _pool():
    for found in gc.get_objects():
        if type(found).__name__ == "StrictSubject":
            return [inputs[0] for inputs in found.pool]
    return []


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.sets = None

    def compute(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        if not _timed(x):
            return self.compute(x)
        if self.sets is None:
            self.sets = [(a, self.compute(a)) for a in _pool()]
        first = next(s for s in self.sets if torch.equal(s[0][0], x[0]))
        last = next(s for s in self.sets if torch.equal(s[0][-1], x[-1]))
        cut = int((first[0][:, 0] == x[:, 0]).sum())
        return torch.cat([first[1][:cut], last[1][cut:]])
