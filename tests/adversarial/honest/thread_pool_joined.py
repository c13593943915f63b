"""Splits the batch over a pool of threads, and waits for all of them.

defence: work after the call, threads
default: yes
problem: mlp
expect: ok
"""

from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.pool = ThreadPoolExecutor(2)

    def part(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        return torch.cat(list(self.pool.map(self.part, x.split(max(1, x.shape[0] // 2)))))
