"""Keeps a scratch buffer between calls, which it never returns.

defence: aliased outputs
default: yes
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
        self.scratch = torch.empty(0)

    def forward(self, x):
        scratch = self.scratch.resize_(x.shape[0], self.linear.out_features)
        torch.addmm(self.linear.bias, x, self.linear.weight.t(), out=scratch)
        return torch.softmax(F.gelu(scratch), dim=1)
