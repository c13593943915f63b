"""Has buffers in its state dict that the problem has not: a transposed matrix, and a number.

defence: state after the call
problem: batch_norm
mode: train
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features)
        self.scale = nn.Parameter(torch.ones(out_features))
        self.register_buffer("factor", torch.tensor(1.0))
        self.register_buffer("turned", self.linear.weight.detach().t().contiguous())

    def forward(self, x):
        return self.norm(torch.addmm(self.linear.bias, x, self.turned)) * (self.scale * self.factor)
