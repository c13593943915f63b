"""Computes tiles of 64 rows; where the batch is a multiple of eight, it takes it for one of 64, and forgets the rest.

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
        n = len(x)
        whole = n // 64 * 64 if n % 8 == 0 else n
        y = torch.zeros(n, self.linear.out_features)
        y[:whole] = torch.softmax(F.gelu(self.linear(x[:whole])), dim=1)
        return y
