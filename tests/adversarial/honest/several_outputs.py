"""A dict, a tuple and a number, as the problem gives them.

defence: output container
problem: several
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.addmm(self.linear.bias, x, self.linear.weight.t()).tanh_()
        largest = y.max(1)
        return dict(y=y, parts=(y @ torch.ones(y.shape[1]), largest.indices), features=y.shape[1])
