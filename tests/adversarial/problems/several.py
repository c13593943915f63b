"""Several outputs of several dtypes: a dict that holds a tensor, a tuple of tensors and a number."""

import torch
import torch.nn as nn

batch_size = 96
in_features = 32
out_features = 48


class Model(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return {"y": y, "parts": (y.sum(1), y.argmax(1)), "features": y.shape[1]}


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features]
