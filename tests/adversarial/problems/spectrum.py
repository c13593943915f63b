"""A complex output."""

import torch
import torch.nn as nn

batch_size = 96
length = 48


class Model(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x)


def get_inputs():
    return [torch.randn(batch_size, length)]
