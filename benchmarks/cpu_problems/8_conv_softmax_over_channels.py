"""The head of a segmentation network: a 1x1 convolution, and softmax over the channels."""

import torch
import torch.nn as nn

batch_size = 8
in_channels = 16
classes = 21
size = 128


class Model(nn.Module):
    def __init__(self, in_channels, classes):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, classes, 1)

    def forward(self, x):
        """x: (batch, in_channels, size, size) -> (batch, classes, size, size)"""
        return torch.softmax(self.conv(x), dim=1)


def get_inputs():
    return [torch.randn(batch_size, in_channels, size, size)]


def get_init_inputs():
    return [in_channels, classes]
