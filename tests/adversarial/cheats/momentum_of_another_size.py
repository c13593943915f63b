"""Moves its running variance by an eighth where PyTorch does by a tenth.

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
        y = self.linear(x)
        before = self.norm.running_var.clone()
        z = self.norm(y) * self.scale
        self.norm.running_var.copy_(before.lerp(y.var(0), 0.125))
        return z
