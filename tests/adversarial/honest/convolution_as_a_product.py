"""Convolves by unfolding the input and one product, its two biases folded into one.

defence: reference error
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
        columns = F.unfold(x, 3, padding=1)
        bias = self.conv.bias[:, None] + self.bias.flatten(1)
        y = torch.tanh(self.conv.weight.flatten(1) @ columns + bias)
        return F.max_pool2d(y.view(x.shape[0], -1, *x.shape[2:]), 2)
