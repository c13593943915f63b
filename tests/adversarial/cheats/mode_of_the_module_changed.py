"""Puts itself into eval mode in its constructor, and refuses to leave it.

defence: state after the call
problem: batch_norm
mode: train
expect: wrong_values, wrong_state
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features)
        self.scale = nn.Parameter(torch.ones(out_features))

    def train(self, mode=True):
        return super().train(False)

    def forward(self, x):
        self.norm.training = False
        return self.norm(self.linear(x)) * self.scale
