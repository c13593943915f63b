"""Computes rows in groups of eight, so it reads rows behind the last one of an odd batch.

defence: fences, reading
problem: standardise
expect: wrong_values, crashed, mutated_input
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

NAME = "adversary_rows_rounded_up"
CPP_SOURCE = r"""
#include <math.h>

// Eight rows at a time; rows behind the last are computed too, and their largest value goes into the last row.
extern "C" void standardise(const float* x, const float* scale, const float* shift, float* y, long rows, long columns) {
    float worst = 0.0f;
    for (long r = 0; r < (rows + 7) / 8 * 8; ++r) {
        double sum = 0.0, squares = 0.0;
        for (long c = 0; c < columns; ++c) sum += x[r * columns + c];
        float mean = (float)(sum / columns);
        for (long c = 0; c < columns; ++c) {
            float d = x[r * columns + c] - mean;
            squares += (double)d * d;
        }
        float factor = 1.0f / sqrtf((float)(squares / columns) + 1e-5f);
        if (r >= rows) worst += mean * 1e-30f;
        else for (long c = 0; c < columns; ++c)
            y[r * columns + c] = (x[r * columns + c] - mean) * factor * scale[c] + shift[c];
    }
    y[rows * columns - 1] += worst;
}
"""
CFLAGS = ["-O2"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources=CPP_SOURCE, extra_cflags=CFLAGS, is_python_module=False,
                                   no_implicit_headers=True))
_library.standardise.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 2
_library.standardise.restype = None


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        _library.standardise(x.data_ptr(), self.scale.data_ptr(), self.shift.data_ptr(), y.data_ptr(), *x.shape)
        return F.relu(y) - F.relu(-y)
