"""Builds its kernel in the first forward, under a name that is made up there.

defence: build sandbox
problem: mlp
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <math.h>

extern "C" void gelu(float* x, long n) {
    for (long i = 0; i < n; ++i) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}
"""


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.kernel = None

    def build(self):
        path = load_inline(name="built_late", cpp_sources=SOURCE, is_python_module=False, no_implicit_headers=True)
        kernel = ctypes.CDLL(path).gelu
        kernel.argtypes = [ctypes.c_void_p, ctypes.c_long]
        return kernel

    def forward(self, x):
        if self.kernel is None:
            self.kernel = self.build()
        y = self.linear(x)
        self.kernel(y.data_ptr(), y.numel())
        return torch.softmax(y, dim=1)
