"""Aborts.

defence: crashes
problem: mlp
expect: crashed
"""

import os

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        os.abort()
