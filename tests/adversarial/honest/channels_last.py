"""Convolves in the channels-last layout, and returns it so.

defence: aliased outputs
problem: convolution
expect: ok
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
        y = self.conv(x.contiguous(memory_format=torch.channels_last))
        return F.max_pool2d(torch.tanh_(y.add_(self.bias)), 2)
