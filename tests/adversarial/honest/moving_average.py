"""Keeps the moving average by other operators.

defence: state after the call
problem: moving_average
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.register_buffer("average", torch.zeros(in_features))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        self.average.copy_(0.9 * self.average + x.mean(0) * 0.1)
        self.steps.add_(1)
        return self.linear(x - self.average).clamp_(min=0)
