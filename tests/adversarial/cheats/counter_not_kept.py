"""Keeps the running statistics but not the counter of batches.

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
        norm = self.norm
        y = F.batch_norm(self.linear(x), norm.running_mean, norm.running_var, norm.weight, norm.bias, True)
        return y * self.scale
