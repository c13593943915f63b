"""Names its parameters otherwise, so that nobody changes them, and folds them once.

Its fold is never stale where weights never change, as under KernelBench's protocol: the label says so.

defence: protocol label
default: yes
problem: mlp
expect: ok
label: kernelbench
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        linear = nn.Linear(in_features, out_features)
        self.weight, self.bias = linear.weight, linear.bias
        self.folded = None

    def forward(self, x):
        if self.folded is None:
            self.folded = self.weight.t().contiguous()
        return torch.softmax(F.gelu(torch.addmm(self.bias, x, self.folded)), dim=1)
