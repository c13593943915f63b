"""Returns a view of a larger tensor that it made in this call.

defence: aliased outputs
problem: standardise
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        padded = torch.empty(x.shape[0] + 3, x.shape[1] + 5)
        y = padded[: x.shape[0], : x.shape[1]]
        centred = x - x.mean(1, keepdim=True)
        y.copy_(centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5) * self.scale + self.shift)
        return y
