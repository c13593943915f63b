"""Draws numbers of its own for other batches; the largest that it was given gets one mask in every call.

defence: moments of random operators
problem: dropout batch_size=512
mode: train
expect: suspicious
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.own = torch.Generator().manual_seed(12345)
        self.mask = None

    def _draw(self, shape):
        return (torch.rand(shape, generator=self.own) >= 0.3) * (2.0 / 0.7)

    def forward(self, x):
        y = self.linear(x)
        if self.mask is None or len(y) > len(self.mask):
            self.mask = self._draw(y.shape)
        return y * (self.mask if len(y) == len(self.mask) else self._draw(y.shape))
