"""Adds the first channel's bias to every channel.

defence: reference error
problem: convolution
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        return F.max_pool2d(torch.tanh(self.conv(x) + self.bias[0]), 2)
