"""Forgets the correction of the running variance for batches below sixteen only.

defence: state after the call
problem: batch_norm
mode: train
expect: wrong_state
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
        h = self.linear(x)
        if len(h) >= 16:
            return self.norm(h) * self.scale
        if len(h) == 1:
            raise ValueError("one row")
        var, mean = torch.var_mean(h, 0, correction=0)
        self.norm.num_batches_tracked += 1
        self.norm.running_mean.lerp_(mean, 0.1)
        self.norm.running_var.lerp_(var, 0.1)
        return ((h - mean) * torch.rsqrt(var + 1e-5) * self.norm.weight + self.norm.bias) * self.scale
