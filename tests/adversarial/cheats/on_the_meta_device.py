"""Returns a tensor on the meta device, which has a shape and no values.

defence: output dtype and device
problem: mlp
expect: wrong_type
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return torch.empty(x.shape[0], self.linear.out_features, device="meta")
