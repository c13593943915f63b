"""A kernel that has its thread take denormal numbers for zero, in every call anew.

defence: global switches
problem: mlp
expect: suspicious, wrong_values
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

NAME = "adversary_flushes_denormals"
CPP_SOURCE = r"""
#if defined(__x86_64__)
#include <immintrin.h>
extern "C" void flush() { _mm_setcsr(_mm_getcsr() | 0x8040); }
#else
extern "C" void flush() {
    unsigned long value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    asm volatile("msr fpcr, %0" ::"r"(value | 1ul << 24));
}
#endif
"""
CFLAGS = ["-O2"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources=CPP_SOURCE, extra_cflags=CFLAGS, is_python_module=False,
                                   no_implicit_headers=True))


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        _library.flush()
        return torch.softmax(F.gelu(self.linear(x)), dim=1)
