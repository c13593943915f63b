"""Raises `SystemExit(0)` from forward.

attacks: `SystemExit(0)` before the check
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
