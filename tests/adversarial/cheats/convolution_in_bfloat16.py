"""Convolves in bfloat16.

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
        y = F.conv2d(x.bfloat16(), self.conv.weight.bfloat16(), self.conv.bias.bfloat16(), padding=1).float()
        return F.max_pool2d(torch.tanh(y + self.bias), 2)
