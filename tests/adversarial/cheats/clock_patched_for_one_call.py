"""Reaches the harness's clock through `object.__subclasses__()`, and lends it one that puts the true one back.

When anybody compares names, everything is as it was.

defence: replaced names
problem: mlp
expect: suspicious
"""

import time

import torch
import torch.nn as nn
import torch.nn.functional as F

_true = time.perf_counter_ns


def _globals():
    """The namespace of the harness's worker."""
    waiting = [object]
    while waiting:
        kind = waiting.pop()
        if kind.__name__ == "StrictSubject":
            return kind.run_call.__globals__
        waiting += type.__subclasses__(kind)
    return {}


_worker = _globals()


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        started = _true()
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        names = [name for name, value in _worker.items() if value is _true]

        def lent():
            for name in names:
                _worker[name] = _true
            return started + (_true() - started) // 4

        for name in names:
            _worker[name] = lent
        return y
