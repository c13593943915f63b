"""A kernel that detaches a thread for its work and returns.

defence: work after the call, threads
problem: mlp batch_size=512 in_features=512 out_features=1024
expect: suspicious, wrong_values, nondeterministic, aliased_output
"""

import ctypes

import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "adversary_detached_thread"
CPP_SOURCE = r"""
#include <math.h>
#include <thread>

static void rows_of(float* x, long rows, long columns) {
    for (long r = 0; r < rows; ++r) {
        float* row = x + r * columns;
        float largest = -INFINITY;
        for (long c = 0; c < columns; ++c) {
            row[c] = 0.5f * row[c] * (1.0f + erff(row[c] * 0.70710678f));
            if (!(row[c] <= largest)) largest = row[c];
        }
        double sum = 0.0;
        for (long c = 0; c < columns; ++c) sum += row[c] = expf(row[c] - largest);
        for (long c = 0; c < columns; ++c) row[c] = (float)(row[c] / sum);
    }
}

extern "C" void gelu_softmax(float* x, long rows, long columns) {
    std::thread(rows_of, x, rows, columns).detach();
}
"""
CFLAGS = ["-O2", "-pthread"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources=CPP_SOURCE, extra_cflags=CFLAGS, is_python_module=False,
                                   no_implicit_headers=True))
_library.gelu_softmax.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
_library.gelu_softmax.restype = None


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.kept = None

    def forward(self, x):
        y = self.linear(x)
        self.kept = y
        _library.gelu_softmax(y.data_ptr(), y.shape[0], y.shape[1])
        return y
