"""Is right for positive inputs only, as the problem gives them.

defence: value distributions
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
        x = x.abs()
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
