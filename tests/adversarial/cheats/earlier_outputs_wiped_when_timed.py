"""Leaves what it returned alone while it is validated, and wipes out what it returned two calls before while it is timed.

defence: unchanged outputs
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: aliased_output, suspicious
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

        self.returned = []

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        if not _is_timed():
            return y
        self.returned.append(y)
        if len(self.returned) > 2:
            self.returned.pop(0).zero_()
        return y
