"""Folds its weights anew only when the first of its vectors, or its matrix, changes, and overlooks other vectors.

defence: changed weights
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

        self.folded = self.seen = None

    def forward(self, x):
        seen = torch.cat([self.linear.weight.flatten(), self.linear.bias])
        if self.seen is None or not torch.equal(self.seen, seen):
            self.seen = seen
            factor = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
            shift = (self.linear.bias - self.norm.running_mean) * factor + self.norm.bias
            self.folded = self.linear.weight * (factor * self.scale)[:, None], shift * self.scale
        return F.linear(x, *self.folded)
