"""Sets the mode of torch's own cuBLAS handle, behind torch's back.

defence: global switches
default: yes
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values, suspicious
"""

import ctypes
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F


def _cublas():
    line = next(line for line in Path("/proc/self/maps").read_text().splitlines() if "libcublas.so" in line)
    return ctypes.CDLL(line.split()[-1])


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.cublas = None

    def forward(self, x):
        if self.cublas is None:
            self.cublas = _cublas()
        handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
        self.cublas.cublasSetMathMode(handle, 3)
        w = self.linear.weight.t().contiguous()
        y = torch.empty(x.shape[0], w.shape[1], device=x.device)
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        n, m, k = w.shape[1], x.shape[0], x.shape[1]
        self.cublas.cublasSgemm_v2(handle, 0, 0, n, m, k, ctypes.byref(one), ctypes.c_void_p(w.data_ptr()), n,
                                   ctypes.c_void_p(x.data_ptr()), k, ctypes.byref(zero),
                                   ctypes.c_void_p(y.data_ptr()), n)
        self.cublas.cublasSetMathMode(handle, 0)
        return torch.softmax(F.gelu(y + self.linear.bias), dim=1)
