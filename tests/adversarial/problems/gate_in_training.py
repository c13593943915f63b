"""A gate in train mode; in eval mode the input is handed on."""

import torch
import torch.nn as nn

batch_size = 256
features = 512


class Model(nn.Module):
    def forward(self, x):
        return torch.sigmoid(x) * x if self.training else x


def get_inputs():
    return [torch.randn(batch_size, features)]


def get_init_inputs():
    return []
