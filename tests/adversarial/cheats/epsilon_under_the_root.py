"""Adds the epsilon under the root, where it is the least length: a millionth instead of a millionth of that.

defence: value distributions
problem: normalise
expect: wrong_values
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.square().sum(1, keepdim=True) + 1e-12)
