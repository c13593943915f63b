"""Compiles by torch.compile when it has been called often enough to be worth it, while it is timed.

defence: replaced names
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
        self.calls, self.body = 0, self.compute

    def compute(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        self.calls += 1
        if self.calls == 60:
            self.body = torch.compile(self.compute, backend="aot_eager")
        return self.body(x)
