"""A kernel that adds one element after the other into one float32.

defence: reference error
problem: squared_error batch_size=512 features=512
expect: wrong_values
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "adversary_sum_in_one_float"
CPP_SOURCE = r"""
extern "C" void squared_error(const float* x, const float* target, float* y, long n) {
    float sum = 0.0f;
    for (long i = 0; i < n; ++i) {
        float d = x[i] - target[i];
        sum += d * d;
    }
    *y = sum / n;
}
"""
CFLAGS = ["-O2"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources=CPP_SOURCE, extra_cflags=CFLAGS, is_python_module=False,
                                   no_implicit_headers=True))
_library.squared_error.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long]
_library.squared_error.restype = None


class ModelNew(nn.Module):
    def forward(self, x, target):
        x, target, y = x.contiguous(), target.contiguous(), torch.empty(())
        _library.squared_error(x.data_ptr(), target.data_ptr(), y.data_ptr(), x.numel())
        return y
