"""Multiplies by the largest forty of 48 singular vectors.

defence: reference error
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
        u, s, v = torch.linalg.svd(self.linear.weight, full_matrices=False)
        h = (x @ v[:40].t() * s[:40]) @ u[:, :40].t() + self.linear.bias
        return torch.softmax(F.gelu(h), dim=1)
