"""Cleans up after itself by the garbage collector, which it turns off and on again.

defence: audit hook
problem: mlp
expect: ok
"""

import gc

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        gc.disable()
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        gc.enable()
        gc.collect(0)
        return y
