"""A layer in bfloat16 between float32 inputs and GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

batch_size = 96
features = 64


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features).to(torch.bfloat16)

    def forward(self, x):
        return F.gelu(self.linear(x.to(torch.bfloat16)))


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return [features]
