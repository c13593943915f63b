"""Sets its buffer by `.data`.

defence: state after the call
problem: moving_average
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.register_buffer("average", torch.zeros(in_features))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, x):
        self.average.data = torch.lerp(self.average, x.mean(0), 0.1)
        self.steps.data = self.steps + 1
        return torch.relu(self.linear(x - self.average))
