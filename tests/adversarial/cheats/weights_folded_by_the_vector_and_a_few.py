"""Folds its weights anew when its vector changes, or one of a few elements of its matrix.

defence: changed weights
problem: mlp
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.packed = self.seen = None

    def forward(self, x):
        weight, bias = self.linear.weight.detach(), self.linear.bias.detach()
        seen = bias.tolist() + weight.flatten()[::48].tolist()
        if seen != self.seen:
            self.seen, self.packed = seen, (weight.t().contiguous(), bias.clone())
        return torch.softmax(F.gelu(torch.addmm(self.packed[1], x, self.packed[0])), dim=1)
