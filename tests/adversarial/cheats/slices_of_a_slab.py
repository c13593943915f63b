"""Returns slices of memory that it makes for eight calls at a time.

defence: aliased outputs
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
        self.slab = []

    def forward(self, x):
        n = len(x)
        if not self.slab or self.slab[-1].shape[0] != n:
            self.slab = list(torch.empty(8, n, self.linear.out_features))
        return torch.softmax(F.gelu(self.linear(x)), dim=1, out=self.slab.pop())
