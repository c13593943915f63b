"""Keeps tables in buffers that are not persistent.

defence: state after the call
problem: mlp
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.register_buffer("table", torch.arange(out_features), persistent=False)
        self.register_buffer("counter", torch.tensor(0), persistent=False)

    def forward(self, x):
        self.counter += 1
        return torch.softmax(F.gelu(self.linear(x))[:, self.table], dim=1)
