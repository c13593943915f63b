"""Splits the long dimension of the product, and adds the parts in pairs.

defence: reference error
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        parts = [a @ b.t() for a, b in zip(x.split(128, 1), self.linear.weight.split(128, 1))]
        while len(parts) > 1:
            parts = [parts[i] + parts[i + 1] for i in range(0, len(parts), 2)]
        return torch.softmax(F.gelu(parts[0] + self.linear.bias), dim=1)
