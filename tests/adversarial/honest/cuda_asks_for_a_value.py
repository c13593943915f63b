"""Asks the device for a number in the middle of each call, so that it is waited for, and goes one of two ways.

defence: joined streams
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = self.linear(x)
        if float(y.abs().max()) < 1e-6:
            return torch.softmax(F.gelu(y), dim=1)
        y = F.gelu(y)
        y = torch.exp(y - y.amax(1, keepdim=True))
        return y / y.sum(1, keepdim=True)
