"""Runs a small step on one thread, and sets the number back.

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
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        y = self.linear(x)
        torch.set_num_threads(threads)
        return torch.softmax(F.gelu(y), dim=1)
