"""Writes its kernel into its folder and builds it from there, with OpenMP, by another way than `load_inline`.

defence: build sandbox
problem: mlp
expect: ok
"""

import ctypes
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

KERNEL = r"""
#include <math.h>

extern "C" void gelu(float* x, long n) {
    #pragma omp parallel for
    for (long i = 0; i < n; ++i) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}
"""
_file = Path("gelu.cpp").resolve()
_file.write_text(KERNEL)
_library = ctypes.CDLL(load("from_a_file", [str(_file)], extra_cflags=["-O2", "-fopenmp"], is_python_module=False))
_library.gelu.argtypes = [ctypes.c_void_p, ctypes.c_long]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = self.linear(x)
        _library.gelu(y.data_ptr(), y.numel())
        return torch.softmax(y, dim=1)
