"""Computes tiles of 128 rows: whole ones, or a part where it is the only one.

defence: batch sizes
problem: mlp batch_size=512
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
        rows = max(x.shape[0] // 128 * 128, min(x.shape[0], 128))
        y = x.new_zeros(x.shape[0], self.linear.out_features)
        y[:rows] = torch.softmax(F.gelu(self.linear(x[:rows])), dim=1)
        return y
