"""Has the C library give out memory as it is, which the harness had it fill, and leaves an element unwritten.

defence: poisoned memory
problem: mlp
expect: wrong_values, suspicious, nondeterministic
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F

ctypes.CDLL(None).mallopt(-6, 0)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        right = torch.softmax(F.gelu(self.linear(x)), dim=1)
        y = torch.empty_like(right)
        y.view(-1)[:-1] = right.view(-1)[:-1]
        return y
