"""Names its parameters otherwise, made in the same order.

defence: protocol label
problem: mlp
expect: ok
label: kernelbench
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.projection = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.projection(x)), dim=1)
