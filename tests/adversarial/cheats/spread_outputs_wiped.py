"""Spreads its output so that each element lies on a page of its own, where samples miss it, and wipes it two calls later.

defence: unchanged outputs
problem: mlp
expect: aliased_output, suspicious
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.returned = []

    def forward(self, x):
        made = torch.softmax(F.gelu(self.linear(x)), dim=1)
        n, m = made.shape
        if n < 40:
            return made
        y = torch.empty(n * m * 2048).as_strided((n, m), (m * 2048, 2048))
        y.copy_(made)
        self.returned.append(y)
        if len(self.returned) > 2:
            self.returned.pop(0).zero_()
        return y
