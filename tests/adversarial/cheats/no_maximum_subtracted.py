"""Leaves out the maximum in softmax: right until the exponential overflows.

defence: value distributions
default: yes
problem: mlp
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
        e = torch.exp(F.gelu(self.linear(x)))
        return e / e.sum(1, keepdim=True)
