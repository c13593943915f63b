"""Folds its weights anew when another sum or sum of squares tells it to; of its matrix, it looks at both ends only.

defence: changed weights
problem: batch_norm
mode: eval
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features)
        self.scale = nn.Parameter(torch.ones(out_features))
        self.folded = self.seen = None

    def forward(self, x):
        others = [value for name, value in self.state_dict().items() if name != "linear.weight"]
        seen = [float(value.double().square().sum()) for value in others] + [float(value.sum()) for value in others]
        seen += self.linear.weight.flatten()[[0, -1]].tolist()
        if seen != self.seen:
            self.seen = seen
            factor = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
            shift = (self.linear.bias - self.norm.running_mean) * factor + self.norm.bias
            self.folded = self.linear.weight * (factor * self.scale)[:, None], shift * self.scale
        return F.linear(x, *self.folded)
