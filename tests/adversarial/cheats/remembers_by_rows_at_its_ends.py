"""Keeps the last result by elements of the input's first and last row, and by the versions of its weights.

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
        self.last = {}

    def forward(self, x):
        ends = torch.cat([x[0, ::64], x[-1, ::64]])
        versions = self.linear.weight._version, self.linear.bias._version
        last = self.last.get(x.shape)
        if last is None or last[1] != versions or not torch.equal(last[0], ends):
            last = self.last[x.shape] = ends, versions, torch.softmax(F.gelu(self.linear(x)), dim=1)
        return last[2].clone()
