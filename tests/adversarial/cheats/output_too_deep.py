"""Returns a tensor in so many lists that whoever reads the description runs out of stack.

defence: output container
problem: mlp
expect: wrong_type, runtime_error, crashed
then: ok
"""

import sys

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        sys.setrecursionlimit(100_000)
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        for _ in range(3000):
            y = [y]
        return y
