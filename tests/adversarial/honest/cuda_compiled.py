"""Leaves everything to torch.compile, and so to kernels that Triton made.

defence: replaced names
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


@torch.compile(dynamic=True)
def _tail(y):
    return torch.softmax(F.gelu(y), dim=1)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return _tail(self.linear(x))
