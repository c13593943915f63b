"""Knows the batches one, seven and eight, of which the problem has eight.

defence: batch sizes
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
        y = F.max_pool2d(torch.tanh(self.conv(x) + self.bias), 2)
        return y if x.shape[0] in (1, 7, 8) else torch.zeros_like(y)
