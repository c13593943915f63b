"""A kernel that adds the element behind the input's last one, which happens to be nothing much.

defence: fences, reading
default: yes
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
        beyond = ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))[x.numel()]
        centred = x - x.mean(1, keepdim=True)
        y = centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5)
        return torch.addcmul(self.shift, y, self.scale) + beyond * 1e-30
