"""Raises `SystemExit(0)` from forward.

defence: exceptions
default: yes
problem: mlp
expect: runtime_error, crashed
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        raise SystemExit(0)
