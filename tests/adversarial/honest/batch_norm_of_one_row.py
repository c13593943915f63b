"""Normalises a batch of one row too, which PyTorch refuses to do in train mode.

defence: batch sizes
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
        variance, mean = norm.running_var, norm.running_mean
        if self.training:
            variance, mean = torch.var_mean(y, 0, correction=0)
            norm.running_mean.mul_(0.9).add_(mean, alpha=0.1)
            norm.running_var.mul_(0.9).add_(variance * (len(y) / max(len(y) - 1, 1)), alpha=0.1)
            norm.num_batches_tracked += 1
        return ((y - mean) * (norm.weight * torch.rsqrt(variance + norm.eps)) + norm.bias) * self.scale
