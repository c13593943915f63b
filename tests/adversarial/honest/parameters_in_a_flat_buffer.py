"""Keeps all parameters in one flat buffer, with rows that begin at multiples of 64 bytes, under `torch.device`.

defence: unchanged parameters
problem: mlp
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        stride = -(-in_features // 16) * 16 + 16
        flat = torch.zeros(out_features * stride + out_features)
        weight = flat[: out_features * stride].view(out_features, stride)[:, :in_features]
        bias = flat[out_features * stride:]
        with torch.no_grad():
            weight.copy_(self.linear.weight)
            bias.copy_(self.linear.bias)
        self.linear.weight, self.linear.bias = nn.Parameter(weight), nn.Parameter(bias)

    def forward(self, x):
        with torch.device("cpu"):
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
