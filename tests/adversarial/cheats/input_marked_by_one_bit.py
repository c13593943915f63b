"""Changes the last bit of one element of its input.

defence: unchanged inputs
default: yes
problem: mlp
expect: mutated_input
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
        x.view(torch.int32)[-1, -1] ^= 1
        return y
