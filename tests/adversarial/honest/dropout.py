"""Drops by the same library call.

defence: moments of random operators
problem: dropout
mode: train
expect: ok
"""

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        return F.dropout(self.linear(x), 0.3, self.training).mul_(2.0)
