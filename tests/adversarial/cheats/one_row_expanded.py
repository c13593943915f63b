"""Returns one row, shown as many times as there are rows.

defence: overlapping elements
default: yes
problem: mlp
expect: aliased_output
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x[:1])), dim=1).expand(x.shape[0], -1)
