"""Folds its weights in the first call, and never looks at them again.

defence: changed weights
default: yes
problem: batch_norm
mode: eval
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features)
        self.scale = nn.Parameter(torch.ones(out_features))
        self.folded = None

    def forward(self, x):
        if self.folded is None:
            factor = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
            shift = (self.linear.bias - self.norm.running_mean) * factor + self.norm.bias
            self.folded = self.linear.weight * (factor * self.scale)[:, None], shift * self.scale
        return F.linear(x, *self.folded)
