"""Splits large batches into chunks, and leaves small ones whole.

defence: reference error
problem: mlp batch_size=512
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
        if x.shape[0] < 300:
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
        y = x.new_empty(x.shape[0], self.linear.out_features)
        for part, out in zip(x.split(128), y.split(128)):
            torch.softmax(F.gelu(self.linear(part)), dim=1, out=out)
        return y
