"""Uses its input as scratch, and returns memory of its own.

defence: unchanged inputs
problem: transposed
expect: mutated_input
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        y = x.clone()
        return y.mul_(x.mul_(self.scale).sigmoid_())
