"""Computes large batches in tiles of 256 rows, and leaves out what is behind the last whole one.

defence: batch sizes
problem: mlp batch_size=1024
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
        whole = len(x) if len(x) <= 384 else len(x) // 256 * 256
        y = x.new_zeros(len(x), self.linear.out_features)
        y[:whole] = torch.softmax(F.gelu(self.linear(x[:whole])), dim=1)
        return y
