"""Works in its input's memory by a copy that torch makes only when somebody writes.

defence: aliased inputs
problem: mlp
expect: wrong_values, aliased_output, wrong_shape
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return torch._lazy_clone(x)[:, : y.shape[1]]
