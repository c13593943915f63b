"""Multiplies what was rounded to bfloat16 in float32.

defence: reference error
problem: bfloat16_layer
accuracy: pytorch
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features).to(torch.bfloat16)

    def forward(self, x):
        y = F.linear(x.to(torch.bfloat16).float(), self.linear.weight.float(), self.linear.bias.float())
        return F.gelu(y).to(torch.bfloat16)
