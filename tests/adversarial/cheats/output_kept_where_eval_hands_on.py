"""Writes each output over the one before in train mode; in eval mode the problem hands on its input, and so does this.

defence: aliased outputs
problem: gate_in_training
expect: aliased_output
mode: both
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        if not self.training:
            return x
        if len(x) not in self.kept:
            self.kept[len(x)] = torch.empty_like(x)
        return torch.sigmoid(x, out=self.kept[len(x)]).mul_(x)
