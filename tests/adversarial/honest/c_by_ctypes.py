"""Compiles plain C by gcc when it is imported, and calls it with addresses; it allocates for itself.

defence: reference error
problem: mlp
expect: ok
"""

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn
SRC = r"""
#include <math.h>
#include <stdlib.h>
void gs(const float* a, float* o, long R, long C) {
  float* t = (float*)malloc(C * sizeof(float));
  for (long r = 0; r < R; ++r) {
    float m = -INFINITY, s = 0;
    for (long c = 0; c < C; ++c) { float v = a[r*C+c]; v = 0.5f*v*(1.0f+erff(v*0.70710678118654752f)); t[c] = v; if (v > m || v != v) m = v; }
    for (long c = 0; c < C; ++c) { t[c] = expf(t[c] - m); s += t[c]; }
    for (long c = 0; c < C; ++c) o[r*C+c] = t[c] / s;
  }
  free(t);
}
"""


def _build():
    d = tempfile.mkdtemp(prefix="gs_")
    c = os.path.join(d, "gs.c")
    so = os.path.join(d, "libgs.so")
    with open(c, "w") as f:
        f.write(SRC)
    subprocess.check_call(["gcc", "-O2", "-shared", "-fPIC", c, "-o", so, "-lm"])
    lib = ctypes.CDLL(so)
    lib.gs.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    lib.gs.restype = None
    return lib


_lib = _build()


class ModelNew(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = nn.Linear(i, o)

    def forward(self, x):
        h = self.linear(x).contiguous()
        out = torch.empty_like(h)
        _lib.gs(h.data_ptr(), out.data_ptr(), *h.shape)
        return out
