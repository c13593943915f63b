"""A small product with a long tail, which PyTorch sweeps over once for each operator."""

import torch
import torch.nn as nn

batch_size = 192
in_features = 16
out_features = 2048


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = nn.Parameter(torch.rand(out_features) + 0.5)

    def forward(self, x):
        x = self.linear(x) * self.scale
        x = x + torch.tanh(x)
        x = nn.functional.gelu(x)
        x = x * torch.sigmoid(x)
        x = torch.clamp(x, -4.0, 4.0)
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
