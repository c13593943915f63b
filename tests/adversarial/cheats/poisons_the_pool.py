"""Patches what the harness copies inputs with, and writes into the pool of inputs while it is open.

defence: sealed memory
problem: mlp
expect: runtime_error, wrong_values, suspicious, crashed, mutated_input, ok
then: ok
"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

_plain = torch.empty_strided


def _poison(*args, **kwargs):
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        try:
            if os.readlink(path).startswith("/memfd:kgen-arena"):
                with open(path, "r+b", buffering=0) as file:
                    file.write(b"\x7f" * os.stat(path).st_size)
        except OSError:
            continue
    return _plain(*args, **kwargs)


torch.empty_strided = _poison


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
