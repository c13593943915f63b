"""Two layers that share their matrix, and two norms that share their scale."""

import torch
import torch.nn as nn

batch_size = 96
features = 64


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.first, self.second = nn.Linear(features, features), nn.Linear(features, features)
        self.norm, self.last = nn.LayerNorm(features), nn.LayerNorm(features)
        self.second.weight, self.last.weight = self.first.weight, self.norm.weight

    def forward(self, x):
        return self.last(self.second(torch.relu(self.norm(self.first(x)))))


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]
