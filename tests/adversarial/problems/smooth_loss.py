"""A smooth loss of a linear layer's output: one number."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 96
in_features = 64
out_features = 48


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x, target):
        return F.smooth_l1_loss(self.linear(x), target)


def get_inputs():
    return [torch.randn(batch_size, in_features), torch.randn(batch_size, out_features)]


def get_init_inputs():
    return [in_features, out_features]
