"""Calls itself until the stack is gone, having raised Python's own limit.

defence: crashes
problem: mlp
expect: crashed, runtime_error, out_of_memory
"""

import sys

import torch.nn as nn

sys.setrecursionlimit(1 << 30)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return repr(_nested(None))


def _nested(value):
    for _ in range(1_000_000):
        value = [value]
    return value
