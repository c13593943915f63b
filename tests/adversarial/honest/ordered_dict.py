"""Returns an ordered dict, with an index that another function found.

defence: output container
problem: several
expect: ok
"""

from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        top = torch.max(y, 1)
        return OrderedDict(y=y, parts=(y.sum(1), top.indices), features=self.linear.out_features)
