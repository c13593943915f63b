"""Runs two halves at once by `torch.jit.fork`, and waits for both.

defence: work after the call, threads
problem: mlp
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def half(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        if len(x) < 2:
            return self.half(x)
        a, b = x.chunk(2)
        futures = [torch.jit.fork(self.half, part) for part in (a, b)]
        return torch.cat([torch.jit.wait(f) for f in futures])
