"""Folds its weights anew when its matrix changes, or one of a few elements of its vector.

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
        few = bias[::12].tolist()
        if self.seen is None or few != self.seen[1] or not torch.equal(self.seen[0], weight):
            self.seen, self.packed = (weight.clone(), few), (weight.t().contiguous(), bias.clone())
        return torch.softmax(F.gelu(torch.addmm(self.packed[1], x, self.packed[0])), dim=1)
