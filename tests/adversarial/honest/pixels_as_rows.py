"""Convolves pixels as rows of a product, permuted there and back.

defence: reference error
problem: pointwise
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 1)

    def forward(self, x):
        return F.gelu(F.linear(x.permute(0, 2, 3, 1), self.conv.weight[:, :, 0, 0], self.conv.bias)).permute(0, 3, 1, 2)
