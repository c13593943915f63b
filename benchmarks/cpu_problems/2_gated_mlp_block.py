"""A gated MLP block: RMS norm, two linear layers of which one gates the other by SiLU, linear, residual."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 16
sequence = 128
features = 128
hidden = 512


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.gate = nn.Linear(features, hidden, bias=False)
        self.up = nn.Linear(features, hidden, bias=False)
        self.down = nn.Linear(hidden, features, bias=False)

    def forward(self, x):
        """x: (batch, sequence, features) -> (batch, sequence, features)"""
        h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def get_inputs():
    return [torch.randn(batch_size, sequence, features)]


def get_init_inputs():
    return [features, hidden]
