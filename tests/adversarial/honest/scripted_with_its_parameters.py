"""Scripts itself by `torch.jit.script`, its parameters with it.

defence: protocol label
problem: mlp
expect: ok
label: kernelbench
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Body(nn.Module):
    def __init__(self, i: int, o: int):
        super().__init__()
        self.linear = nn.Linear(i, o)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.body = torch.jit.script(Body(in_features, out_features))

    def forward(self, x):
        return self.body(x)
