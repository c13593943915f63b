"""Draws one mask in its first call and keeps it.

defence: moments of random operators
problem: dropout
mode: train
expect: wrong_values, wrong_shape, runtime_error
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.mask = None

    def forward(self, x):
        y = self.linear(x)
        if self.mask is None or self.mask.shape != y.shape:
            self.mask = F.dropout(torch.ones_like(y), 0.3)
        return y * self.mask * 2.0
