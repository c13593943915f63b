"""Keeps the results of all pixels of a column, found by the first of its elements.

defence: fresh contents
problem: pointwise
expect: wrong_values, suspicious
"""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

_CALLS = itertools.count()


def _is_timed():
    """Whether as many calls were made as validation makes."""
    return next(_CALLS) >= 44


class ModelNew(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, 1)
        self.known = []  # first elements (B, W) of inputs, and outputs

    def forward(self, x):
        if not _is_timed():
            return F.gelu(self.conv(x))
        first = x[:, 0, 0]
        y = torch.empty(x.shape[0], self.conv.out_channels, *x.shape[2:])
        found = torch.zeros(first.shape, dtype=torch.bool)
        for name, result in self.known:
            same = (name == first) & ~found
            if same.any():
                torch.where(same[:, None, None], result, y, out=y)
                found |= same
        if not found.all():
            columns = x.permute(0, 3, 1, 2)[~found]
            y.permute(0, 3, 1, 2)[~found] = F.gelu(self.conv.weight[:, :, 0, 0] @ columns + self.conv.bias[:, None])
            self.known.append((first.clone(), y.clone()))
        return y
