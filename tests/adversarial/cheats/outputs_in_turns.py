"""Keeps two outputs and uses them in turns, so that no two calls in a row share memory.

defence: aliased outputs
default: yes
problem: mlp
expect: aliased_output
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.kept, self.calls = [torch.empty(0), torch.empty(0)], 0

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        self.calls += 1
        return self.kept[self.calls % 2].resize_(y.shape).copy_(y)
