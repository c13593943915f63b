"""Puts the parts of its dict in in another order.

defence: output container
problem: several
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return {"features": y.shape[1], "parts": (y.sum(1), y.argmax(1)), "y": y}
