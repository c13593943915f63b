"""Asks for memory until there is none.

defence: memory limit
problem: mlp
expect: out_of_memory
seconds: 20
then: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        kept = []
        while True:
            kept.append(torch.ones(1 << 26))
