"""Works for the batch of the problem and its neighbours only.

defence: batch sizes
problem: mlp
expect: wrong_values, runtime_error
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        if x.shape[0] < 32:
            raise ValueError("the batch is too small")
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
