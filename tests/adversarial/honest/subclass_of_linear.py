"""Has its layers in a class of its own, which inherits from torch's.

defence: library label
problem: mlp
expect: ok
"""

import torch.nn as nn
import torch.nn.functional as F


class Fused(nn.Linear):
    """A linear layer with its activation."""

    def forward(self, x):
        return F.gelu(super().forward(x))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = Fused(in_features, out_features)
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x):
        return self.softmax(self.linear(x))
