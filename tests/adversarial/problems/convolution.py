"""Convolution (NCHW), a bias for each channel, tanh, and a 2x2 maximum."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8
in_channels = 3
out_channels = 8
height = 18
width = 18


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1)
        self.bias = nn.Parameter(torch.randn(out_channels, 1, 1))

    def forward(self, x):
        return F.max_pool2d(torch.tanh(self.conv(x) + self.bias), 2)


def get_inputs():
    return [torch.randn(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels]
