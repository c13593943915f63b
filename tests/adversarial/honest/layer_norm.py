"""Uses the library's layer norm, which sums in another order.

defence: reference error
problem: standardise
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        return F.layer_norm(x, x.shape[1:], self.scale, self.shift, 1e-5)
