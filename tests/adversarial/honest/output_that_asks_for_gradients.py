"""Turns gradients on inside, so that its output asks for them.

defence: plain tensors
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

    def forward(self, x):
        with torch.enable_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
