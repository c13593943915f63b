"""A smooth loss from its two parts, without a branch, summed in another order.

defence: non-finite values
problem: smooth_loss
expect: ok
"""

import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x, target):
        distance = (self.linear(x) - target).abs()
        inner = distance.clamp(max=1.0)
        return (inner * (distance - 0.5 * inner)).mean(1).mean()
