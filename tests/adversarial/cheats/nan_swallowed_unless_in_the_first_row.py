"""Takes NaN and infinities for numbers, unless the first row has one.

defence: non-finite values
problem: mlp batch_size=1024
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
        h = self.linear(x)
        if bool(torch.isfinite(x[0]).all()):
            h = h.nan_to_num()
        return torch.softmax(F.gelu(h), dim=1)
