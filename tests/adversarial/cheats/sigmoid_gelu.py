"""Uses x * sigmoid(1.702 x) for GELU.

defence: reference error
problem: mlp
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = self.linear(x)
        return torch.softmax(y * torch.sigmoid(1.702 * y), dim=1)
