"""Keeps a small table in pinned memory, and copies it over without blocking.

defence: fenced streams
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
        self.one = torch.ones(out_features).pin_memory() if torch.cuda.is_available() else torch.ones(out_features)

    def forward(self, x):
        one = self.one.to(x.device, non_blocking=True)
        return torch.softmax(F.gelu(self.linear(x)) * one, dim=1)
