"""Folds batch norm into the linear layer, and folds anew when the contents of anything in the fold are others.

defence: changed weights
problem: batch_norm
mode: eval
expect: ok
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
        self.folded, self.made_from = None, []

    def forward(self, x):
        now = [*self.linear.parameters(), *self.norm.parameters(), *self.norm.buffers(), self.scale]
        if self.folded is None or not all(map(torch.equal, self.made_from, now)):
            self.made_from = [value.detach().clone() for value in now]
            factor = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
            shift = (self.linear.bias - self.norm.running_mean) * factor + self.norm.bias
            self.folded = self.linear.weight * (factor * self.scale)[:, None], shift * self.scale
        return F.linear(x, *self.folded)
