"""A convolution that leaves zeros where padding would be needed.

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
        y = F.pad(F.conv2d(x, self.conv.weight, self.conv.bias), (1, 1, 1, 1))
        return F.max_pool2d(torch.tanh(y + self.bias), 2)
