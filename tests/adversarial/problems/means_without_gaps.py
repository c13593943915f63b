"""Means of rows without their NaN, as of measurements with gaps."""

import torch
import torch.nn as nn

batch_size = 1024
features = 2048


class Model(nn.Module):
    def forward(self, x):
        missing = torch.isnan(x)
        return torch.where(missing, 0.0, x).sum(1) / (~missing).sum(1)


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return []
