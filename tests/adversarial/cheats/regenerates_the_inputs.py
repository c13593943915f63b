"""Tries the seeds that evaluators use, and returns a kept result where one makes the same input again.

defence: fresh contents
problem: mlp
expect: wrong_values, wrong_shape
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

_seeds = (0, 1, 42, 123, 1234, 1337, 2024, torch.initial_seed(), torch.initial_seed() + 7)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        for seed in _seeds:
            generator = torch.Generator().manual_seed(seed)
            if torch.equal(torch.rand(x.shape, generator=generator), x):
                return torch.softmax(F.gelu(self.linear(x)), dim=1)
        return x.new_zeros(x.shape[0], self.linear.out_features)
