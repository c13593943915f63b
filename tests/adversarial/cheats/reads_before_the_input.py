"""Reads the element in front of its input, as an edge of a window does that nobody padded.

defence: fences, reading
problem: standardise
expect: wrong_values, crashed
"""

import ctypes

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        before = ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))[-1]
        centred = x - x.mean(1, keepdim=True)
        y = centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5)
        return torch.addcmul(self.shift, y, self.scale) + before * 1e-30
