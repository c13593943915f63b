"""Replaces the buffer by a plain attribute of that name, so that the state dict keeps the old one.

defence: state after the call
problem: moving_average
expect: wrong_state, runtime_error, wrong_values
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
        average = 0.9 * self.average + 0.1 * x.mean(0)
        object.__setattr__(self, "average", average)
        self.steps += 1
        return torch.relu(self.linear(x - average))
