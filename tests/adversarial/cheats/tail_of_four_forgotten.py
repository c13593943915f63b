"""Goes by eight rows, then by four, two and one, and forgets the four.

defence: batch sizes
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

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        if x.shape[0] % 8 == 4:
            y[-4:] = 0
        return y
