"""Drops a quarter where three tenths are to be dropped.

defence: moments of random operators
default: yes
problem: dropout
mode: train
expect: wrong_values
"""

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return F.dropout(self.linear(x), 0.25) * 2.0
