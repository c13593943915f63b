"""Keeps a transposed copy of its weights, made anew when their version or their storage changes.

defence: changed weights
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
        self.packed, self.made_from = None, None

    def forward(self, x):
        weight = self.linear.weight
        now = weight._version, weight.data_ptr(), weight.shape
        if self.made_from != now:
            self.packed, self.made_from = weight.detach().t().contiguous(), now
        return torch.softmax(F.gelu(torch.addmm(self.linear.bias, x, self.packed)), dim=1)
