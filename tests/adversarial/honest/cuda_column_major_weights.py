"""Keeps its matrix transposed in memory under the shape that the problem gives it, for the product's sake.

defence: unchanged parameters
problem: mlp batch_size=1000 in_features=512 out_features=2048
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        with torch.no_grad():
            self.linear.weight = nn.Parameter(self.linear.weight.t().contiguous().t())

    def forward(self, x):
        y = torch.addmm(self.linear.bias, x, self.linear.weight.t())  # both operands lie row by row
        return torch.softmax(F.gelu(y), dim=1)
