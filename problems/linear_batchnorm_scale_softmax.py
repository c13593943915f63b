"""A linear layer, batch norm over the batch, a learned scale for all features together, and softmax."""

import torch
import torch.nn as nn

batch_size = 1024
in_features = 8192
out_features = 8192
eps = 1e-5
momentum = 0.1
scale_shape = (1,)


class Model(nn.Module):
    def __init__(self, in_features, out_features, eps, momentum, scale_shape):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features, eps=eps, momentum=momentum)
        self.scale = nn.Parameter(torch.ones(scale_shape))

    def forward(self, x):
        """x: (batch, in_features) -> (batch, out_features)"""
        x = self.norm(self.linear(x))
        return torch.softmax(self.scale * x, dim=1)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, eps, momentum, scale_shape]
