"""Small ModelNew files, written by hand: an honest one, and one for each way of being wrong."""

import hashlib

KERNEL = r"""
#include <math.h>

// One row: exact GELU, then softmax with the maximum subtracted; x is overwritten.
extern "C" void gelu_softmax(float* x, long rows, long columns) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        float* row = x + r * columns;
        float largest = -INFINITY;
        for (long c = 0; c < columns; ++c) {
            row[c] = 0.5f * row[c] * (1.0f + erff(row[c] * 0.70710678f));
            if (!(row[c] <= largest)) largest = row[c];
        }
        double sum = 0.0;
        for (long c = 0; c < columns; ++c) {
            row[c] = expf(row[c] - largest);
            sum += row[c];
        }
        float inverse = (float)(1.0 / sum);
        for (long c = 0; c < columns; ++c) row[c] *= inverse;
    }
}
"""

MODULE = '''"""Linear, GELU and softmax: the library's product, and one kernel behind it."""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "{name}"
CPP_SOURCE = r"""{kernel}"""
CFLAGS = ["-O3", "-march=native", "-fopenmp"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources=CPP_SOURCE, extra_cflags=CFLAGS, is_python_module=False,
                                   no_implicit_headers=True))
_kernel = _library.gelu_softmax
_kernel.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
_kernel.restype = None


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        {init}

    def forward(self, x):
        {before}
        y = torch.nn.functional.linear(x, self.linear.weight, self.linear.bias)
        _kernel(y.data_ptr(), y.shape[0], y.shape[1])
        {after}
        return y
'''


def render(kernel=KERNEL, init="pass", before="pass", after="pass"):
    """The honest file, with the parts replaced that a test is about."""
    text = f"{kernel}{init}{before}{after}"
    name = "test_" + hashlib.sha256(text.encode()).hexdigest()[:16]
    return MODULE.format(name=name, kernel=kernel, init=init, before=before, after=after)


PLAIN = '''"""A candidate without a kernel of its own."""

import os
import sys
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.kept = None

    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        {body}
'''


def plain(body):
    """A file that calls the library, then ``body``."""
    return PLAIN.format(body=body.replace("\n", "\n        "))
