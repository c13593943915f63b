"""Linear, batch norm and a scale: batch statistics, and running ones that are kept."""

import torch
import torch.nn as nn

batch_size = 96
in_features = 32
out_features = 48


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features)
        self.scale = nn.Parameter(torch.ones(out_features))

    def forward(self, x):
        return self.norm(self.linear(x)) * self.scale


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
