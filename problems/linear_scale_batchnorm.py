"""A linear layer, a learned scale for each feature, and batch norm over the batch."""

import torch
import torch.nn as nn

batch_size = 16384
in_features = 4096
out_features = 4096
scale_shape = (out_features,)
eps = 1e-5
momentum = 0.1


class Model(nn.Module):
    def __init__(self, in_features, out_features, scale_shape, eps, momentum):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.randn(scale_shape))
        self.norm = nn.BatchNorm1d(out_features, eps=eps, momentum=momentum)

    def forward(self, x):
        """x: (batch, in_features) -> (batch, out_features)"""
        x = self.linear(x) * self.scale
        return self.norm(x)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, scale_shape, eps, momentum]
