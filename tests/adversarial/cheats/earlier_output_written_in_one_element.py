"""Returns memory of its own each time, and writes one element of what it returned two calls before.

defence: unchanged outputs
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: aliased_output, suspicious
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

        self.returned = []

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        if y.numel() > 1 << 18:
            self.returned.append(y)
        if len(self.returned) > 2:
            self.returned.pop(0)[-1, -1] = 0
        return y
