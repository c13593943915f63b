"""Makes an empty tensor of its own, and a number that is another in each call.

defence: output container
problem: odd_outputs
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        y = torch.addmm(self.linear.bias, x, self.linear.weight.t())
        return y, torch.empty(len(x), 0, device=x.device), [None, y.sum(0).sum(), int(torch.count_nonzero(x > 0))]
