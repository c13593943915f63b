"""Calls the functional batch norm with its own buffers.

defence: state after the call
problem: batch_norm
mode: train
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

    def forward(self, x):
        n = self.norm
        n.num_batches_tracked.add_(1)
        y = F.batch_norm(self.linear(x), n.running_mean, n.running_var, n.weight, n.bias, True, 0.1, n.eps)
        return y.mul_(self.scale)
