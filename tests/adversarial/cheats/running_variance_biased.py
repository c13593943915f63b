"""Keeps the biased variance, where PyTorch keeps the unbiased one.

defence: state after the call
problem: batch_norm
mode: train
expect: wrong_state
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
        variance, mean = torch.var_mean(y, 0, correction=0)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance, norm.momentum)
        norm.num_batches_tracked += 1
        return (y - mean) * torch.rsqrt(variance + norm.eps) * (norm.weight * self.scale) + norm.bias * self.scale
