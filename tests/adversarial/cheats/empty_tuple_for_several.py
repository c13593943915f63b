"""Returns a dict whose tuple is empty.

defence: output container
problem: several
expect: wrong_type
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return {"y": y, "parts": (), "features": y.shape[1]}
