"""Is right and fast until it is timed, and then never comes back.

defence: deadlines
problem: mlp
expect: timeout
seconds: 2
then: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

_calls = {}


def _timed(x):
    """Whether the full batch, which comes first, has come more often than validation asks for it."""
    _calls[x.shape[0]] = _calls.get(x.shape[0], 0) + 1
    return x.shape[0] == next(iter(_calls)) and _calls[x.shape[0]] > 6


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += _timed(x)
        while self.calls > 8:
            continue
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
