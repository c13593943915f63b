"""Traces its body with torch.fx, which patches torch while it looks.

defence: replaced names
problem: mlp
expect: ok
"""

import torch
import torch.fx
import torch.nn as nn
import torch.nn.functional as F


class Body(nn.Module):
    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.body = [torch.fx.symbolic_trace(Body(self.linear))]

    def forward(self, x):
        return self.body[0](x)
