"""A non-contiguous input: the transposed view of what lies in memory, scaled and squashed."""

import torch
import torch.nn as nn

batch_size = 96
features = 64


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return torch.sigmoid(x * self.scale) * x


def get_inputs():
    return [torch.randn(features, batch_size).t()]


def get_init_inputs():
    return [features]
