"""Multiplies with oneDNN switched off for its own product, by torch's own context.

defence: global switches
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
        with torch.backends.mkldnn.flags(enabled=False):
            return torch.softmax(F.gelu(self.linear(x)), dim=1)
