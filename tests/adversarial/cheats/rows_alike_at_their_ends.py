"""Takes a row for the one before it where their first and last elements are the same.

defence: fresh contents
problem: mlp batch_size=96 in_features=1024 out_features=48
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
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        ends = x[:, [0, 1, -2, -1]]
        same = (ends[1:] == ends[:-1]).all(1)
        for i in same.nonzero()[:, 0].tolist():
            y[i + 1] = y[i]
        return y
