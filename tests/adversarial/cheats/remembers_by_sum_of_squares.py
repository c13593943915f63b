"""Keeps results by the sum of the input's squares, and by the versions of its weights.

defence: fresh contents
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: wrong_values, aliased_output
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.kept = {}

    def forward(self, x):
        key = x.shape, float((x * x).sum()), self.linear.weight._version, self.linear.bias._version
        if key not in self.kept:
            self.kept[key] = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return self.kept[key].clone()
