"""Takes GELU for the identity above four, and for zero below minus four.

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
        h = self.linear(x)
        return torch.softmax(torch.where(h.abs() > 4, h.relu(), F.gelu(h)), dim=1)
