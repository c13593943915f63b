"""Takes the mean of every other row.

defence: reference error
problem: moving_average
expect: wrong_values, wrong_state
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
        self.average.mul_(0.9).add_(x[::2].mean(0), alpha=0.1)
        self.steps += 1
        return torch.relu(self.linear(x - self.average))
