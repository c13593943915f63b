"""Returns a constant for an index.

defence: integer outputs
default: yes
problem: several
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return {"y": y, "parts": (y.sum(1), y.argmax(1) * 0), "features": y.shape[1]}
