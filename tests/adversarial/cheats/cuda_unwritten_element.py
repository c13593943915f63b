"""Leaves the last element of every row as the allocator gave it.

defence: poisoned memory
default: yes
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        z = torch.empty_like(y)
        z[:, :-1] = y[:, :-1]
        return z
