"""Keeps its running statistics in eval mode, too.

defence: state after the call
problem: batch_norm
mode: eval
expect: wrong_state, wrong_values
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
        y = self.linear(x)
        if not self.training:
            self.norm.running_mean.lerp_(y.mean(0), 0.1)
        return self.norm(y) * self.scale
