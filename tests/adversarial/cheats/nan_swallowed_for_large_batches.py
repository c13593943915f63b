"""Takes NaN and infinities for numbers, where the batch is large.

defence: non-finite values
problem: mlp batch_size=512
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
        if len(x) >= 400:
            h = h.nan_to_num()
        return torch.softmax(F.gelu(h), dim=1)
