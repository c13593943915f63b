"""Linear, exact GELU and softmax."""

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

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)


def get_inputs():
    return [torch.rand(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
