"""Cuts the memory files that it has open to nothing: whoever has them mapped gets a bus error.

defence: sealed memory
problem: mlp
expect: runtime_error, wrong_values, suspicious, crashed, ok
then: ok
"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F


def _cut():
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        try:
            if os.readlink(path).startswith("/memfd:"):
                os.truncate(path, 0)
        except OSError:
            continue


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        if self.calls == 2:
            _cut()
        return y
