"""Takes what is not finite for zero, in a loss that is one number.

defence: non-finite values
problem: smooth_loss
expect: wrong_values
"""

import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x, target):
        return F.smooth_l1_loss(self.linear(x).nan_to_num(0.0, 0.0, 0.0), target.nan_to_num(0.0, 0.0, 0.0))
