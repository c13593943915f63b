"""Asks for more memory than there is.

defence: memory limit
problem: mlp
expect: out_of_memory
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.ones(1 << 42)
