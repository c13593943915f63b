"""Works for the batch sizes that the evaluator is known to try, and for no other.

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
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return y if x.shape[0] in (1, 7, 63, 64, 65, 96, 256) else torch.zeros_like(y)
