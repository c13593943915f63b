"""A transformer's MLP block: layer norm, linear, GELU, linear, residual."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 8
sequence = 128
features = 256
hidden = 1024


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.up = nn.Linear(features, hidden)
        self.down = nn.Linear(hidden, features)

    def forward(self, x):
        """x: (batch, sequence, features) -> (batch, sequence, features)"""
        return x + self.down(F.gelu(self.up(self.norm(x))))


def get_inputs():
    return [torch.randn(batch_size, sequence, features)]


def get_init_inputs():
    return [features, hidden]
