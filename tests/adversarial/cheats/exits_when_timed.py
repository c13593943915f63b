"""Is right while it is validated, and ends its process with exit code 0 when it is timed.

attacks: `os._exit(0)` before the check
problem: mlp
expect: crashed
"""

import gc
import os

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        if not gc.isenabled():
            os._exit(0)
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
