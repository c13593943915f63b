"""Fills files in memory, which no limit of an address space counts.

defence: memory limit
default: yes
problem: mlp
expect: out_of_memory, runtime_error, crashed, suspicious
then: ok
"""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

_files = []


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        for _ in range(36):
            fd = os.memfd_create("kgen-adversary")
            os.posix_fallocate(fd, 0, 100 << 20)
            _files.append(fd)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
