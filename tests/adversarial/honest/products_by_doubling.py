"""A scan by steps that double: what vanishes meets an infinity in another order, and makes it NaN in other places.

defence: non-finite values
problem: products
expect: ok
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y, step = x.double(), 1
        while step < y.shape[1]:
            y = torch.cat([y[:, :step], y[:, step:] * y[:, :-step]], 1)
            step *= 2
        return y.float()
