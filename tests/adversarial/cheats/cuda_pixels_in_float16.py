"""Convolves single pixels in float16 with float32 sums, as the tensor cores do.

defence: reference error
problem: pointwise
gpu: yes
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 1)

    def forward(self, x):
        weight, bias = self.conv.weight.half(), self.conv.bias
        y = F.conv2d(x.half().contiguous(memory_format=torch.channels_last), weight).float()
        return F.gelu(y + bias[:, None, None]).contiguous()
