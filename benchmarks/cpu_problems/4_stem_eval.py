"""The first layers of a ResNet as they run in inference: convolution, batch norm, ReLU, max pooling."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8
channels = 64
size = 128


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 7, stride=2, padding=3, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.eval()

    def forward(self, x):
        """x: (batch, 3, size, size) -> (batch, channels, size / 4, size / 4)"""
        return F.max_pool2d(F.relu(self.norm(self.conv(x))), 3, stride=2, padding=1)


def get_inputs():
    return [torch.randn(batch_size, 3, size, size)]


def get_init_inputs():
    return [channels]
