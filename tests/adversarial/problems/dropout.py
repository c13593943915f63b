"""Linear, dropout and a scale: random in train mode."""

import torch
import torch.nn as nn

batch_size = 96
in_features = 32
out_features = 48


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        return self.dropout(self.linear(x)) * 2.0


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
