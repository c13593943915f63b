"""Returns memory that it keeps in every third call.

defence: aliased outputs
problem: mlp
expect: aliased_output, suspicious
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.calls, self.kept = 0, {}

    def forward(self, x):
        self.calls += 1
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        if self.calls % 3:
            return y
        return self.kept.setdefault(len(x), torch.empty_like(y)).copy_(y)
