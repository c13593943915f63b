"""Leaves the meta device as the default one, on which everything is done at once.

defence: global switches
problem: mlp
expect: suspicious, wrong_values, wrong_type, runtime_error
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
        torch.set_default_device("meta")
        return y
