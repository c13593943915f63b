"""Batch norm from the moments, with the unbiased variance kept and the counter.

defence: state after the call
default: yes
problem: batch_norm
mode: train
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features)
        self.scale = nn.Parameter(torch.ones(out_features))

    def forward(self, x):
        norm, y = self.norm, self.linear(x)
        if y.shape[0] == 1:
            raise ValueError("batch norm needs more than one row in train mode")
        variance, mean = torch.var_mean(y, 0, correction=0)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (y.shape[0] / (y.shape[0] - 1)), norm.momentum)
        norm.num_batches_tracked.add_(1)
        return (y - mean) * torch.rsqrt(variance + norm.eps) * (norm.weight * self.scale) + norm.bias * self.scale
