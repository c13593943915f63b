"""Is a plain class, with a state dict that pretends.

defence: output container
problem: mlp
expect: load_error, wrong_values, wrong_type
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew:
    def __init__(self, in_features, out_features):
        self.linear = nn.Linear(in_features, out_features)

    def __getattr__(self, name):
        return getattr(self.linear, name)

    def __call__(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
