"""Ends its process with exit code 0, without any cleaning up.

defence: crashes
default: yes
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
        os._exit(0)
