"""Is wrong in one call of eight.

defence: repeated runs
problem: mlp
expect: wrong_values, nondeterministic
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return y * 1.001 if self.calls % 8 == 0 else y
