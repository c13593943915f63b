"""Running sums along the middle dimension."""

import torch
import torch.nn as nn

batch_size = 16
sequence = 512
features = 256


class Model(nn.Module):
    def forward(self, x):
        """x: (batch, sequence, features) -> the same"""
        return torch.cumsum(x, dim=1)


def get_inputs():
    return [torch.randn(batch_size, sequence, features)]


def get_init_inputs():
    return []
