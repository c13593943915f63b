"""Sums a long vector in two stages.

defence: reference error
problem: squared_error
expect: ok
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, target):
        difference = x - target
        return difference.square_().sum(1).sum() / difference.numel()
