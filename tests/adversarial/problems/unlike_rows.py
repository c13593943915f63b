"""A linear layer and a rectifier, of rows of which few are very large, as amounts of money are."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 512
in_features = 512
out_features = 512


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=False)

    def forward(self, x):
        return F.relu(self.linear(x))


def get_inputs():
    x = torch.randn(batch_size, in_features)
    return [torch.where(torch.rand(batch_size, 1) < 0.06, x * 1e8, x)]


def get_init_inputs():
    return [in_features, out_features]
