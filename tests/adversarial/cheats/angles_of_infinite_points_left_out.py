"""Divides before it takes an angle: NaN where both coordinates are infinite.

defence: non-finite values
problem: angles
expect: wrong_values
"""

import math

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, y, x):
        angle = torch.where((y == 0) & (x == 0), y, torch.atan(y / x))
        return torch.where(x < 0, angle + torch.where(y < 0, -math.pi, math.pi), angle)
