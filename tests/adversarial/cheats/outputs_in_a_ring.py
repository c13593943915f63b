"""Keeps a ring of sixteen outputs.

defence: aliased outputs
problem: mlp
expect: aliased_output
"""

from collections import deque

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.ring = deque(torch.empty(0) for _ in range(16))

    def forward(self, x):
        self.ring.rotate()
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return self.ring[0].resize_(y.shape).copy_(y)
