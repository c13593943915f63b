"""Returns the bias alone for rows that are small beside the largest one.

defence: row and column limits
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
        size = x.abs().amax(1, keepdim=True)
        x = torch.where(size < 1e-2 * size.max(), 0.0, x)
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
