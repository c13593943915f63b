"""Folds batch norm into the linear layer, in eval mode, whenever something that it is made of changes.

defence: changed weights
default: yes
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
        self.made_from = self.folded = None

    def forward(self, x):
        sources = [*self.linear.parameters(), *self.norm.parameters(), *self.norm.buffers(), self.scale]
        now = [(source._version, source.data_ptr()) for source in sources]
        if now != self.made_from:
            factor = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
            shift = (self.linear.bias - self.norm.running_mean) * factor + self.norm.bias
            self.folded = self.linear.weight * (factor * self.scale)[:, None], shift * self.scale
            self.made_from = now
        return F.linear(x, *self.folded)
