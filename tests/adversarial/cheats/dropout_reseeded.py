"""Seeds the generator before each draw, so that every call drops the same elements.

defence: moments of random operators
problem: dropout
mode: train
expect: wrong_values
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        torch.manual_seed(0)
        return F.dropout(self.linear(x), 0.3) * 2.0
