"""Leaves out the maximum in softmax where the first rows are small.

defence: value distributions
problem: mlp batch_size=1024 in_features=64 out_features=2048
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
        h = F.gelu(self.linear(x))
        if float(h[:4].max()) > 10:
            return torch.softmax(h, dim=1)
        e = h.exp()
        return e / e.sum(1, keepdim=True)
