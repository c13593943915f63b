"""Leaves the running statistics of its batch norm alone.

defence: state after the call
default: yes
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
        norm.num_batches_tracked += 1
        return F.batch_norm(self.linear(x), None, None, norm.weight, norm.bias, True) * self.scale
