"""Keeps its last input, and gives a copy of its last result where the next one is the same throughout.

defence: fresh contents
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
        self.seen, self.weight, self.kept = None, None, None

    def forward(self, x):
        weight = self.linear.weight._version, self.linear.bias._version
        if self.seen is None or self.weight != weight or not torch.equal(self.seen, x):
            self.seen, self.weight, self.kept = x.clone(), weight, torch.softmax(F.gelu(self.linear(x)), dim=1)
        return self.kept.clone()
