"""A convolution, batch norm by the batch's statistics, ReLU and max pooling."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
in_channels = 8
out_channels = 32
size = 64


class Model(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(self, x):
        """x: (batch, in_channels, size, size) -> (batch, out_channels, size / 2, size / 2)"""
        return F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)


def get_inputs():
    return [torch.randn(batch_size, in_channels, size, size)]


def get_init_inputs():
    return [in_channels, out_channels]
