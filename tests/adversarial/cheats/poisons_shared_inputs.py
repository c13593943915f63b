"""Writes into every memory file that it has open: weights and inputs of candidates to come.

defence: sealed memory
default: yes
problem: mlp
expect: runtime_error, wrong_values, suspicious, crashed, ok
then: ok
"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F


def _poison():
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        try:
            if os.readlink(path).startswith("/memfd:kgen-arena"):
                with open(path, "r+b", buffering=0) as file:
                    file.write(bytes(range(256)) * (os.stat(path).st_size // 256))
        except OSError:
            continue


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        _poison()

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
