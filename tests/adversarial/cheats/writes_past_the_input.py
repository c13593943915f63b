"""Writes a zero behind its input's last element.

defence: fences, writing
default: yes
problem: standardise
expect: mutated_input, crashed, suspicious
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
        ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))[x.numel()] = 0.0
        centred = x - x.mean(1, keepdim=True)
        y = centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5)
        return torch.addcmul(self.shift, y, self.scale)
