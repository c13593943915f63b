"""Takes the hyperbolic tangent as one less two over an exponential and one.

attacks: other rounding
problem: several
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        h = self.linear(x)
        y = torch.expm1(2 * h.abs().clamp(max=20.0))
        y = torch.copysign(y / (y + 2), h)
        return {"y": y, "parts": (y.sum(1), y.argmax(1)), "features": y.shape[1]}
