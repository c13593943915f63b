"""Keeps one output in memory that is mapped twice: two addresses, one page.

defence: aliased outputs
problem: mlp
expect: aliased_output, suspicious, wrong_values
"""

import mmap
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

_fd = os.memfd_create("pages")
os.ftruncate(_fd, 1 << 20)
_maps = [mmap.mmap(_fd, 1 << 20) for _ in range(2)]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        shape = x.shape[0], self.linear.out_features
        y = torch.frombuffer(_maps[self.calls % 2], dtype=torch.float32, count=shape[0] * shape[1]).view(shape)
        return y.copy_(torch.softmax(F.gelu(self.linear(x)), dim=1))
