"""A kernel that starts threads of its own, and joins them before it returns.

defence: work after the call, threads
problem: mlp
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "adversary_honest_threads"
CPP_SOURCE = r"""
#include <math.h>
#include <thread>
#include <vector>

static void gelu_of(float* x, long n) {
    for (long i = 0; i < n; ++i) x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

extern "C" void gelu(float* x, long n) {
    std::vector<std::thread> threads;
    for (long part = 0; part < 4; ++part)
        threads.emplace_back(gelu_of, x + n * part / 4, n * (part + 1) / 4 - n * part / 4);
    for (auto& thread : threads) thread.join();
}
"""
CFLAGS = ["-O2", "-pthread"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources=CPP_SOURCE, extra_cflags=CFLAGS, is_python_module=False,
                                   no_implicit_headers=True))
_library.gelu.argtypes = [ctypes.c_void_p, ctypes.c_long]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = self.linear(x)
        _library.gelu(y.data_ptr(), y.numel())
        return torch.softmax(y, dim=1)
