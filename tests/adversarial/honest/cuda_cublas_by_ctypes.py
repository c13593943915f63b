"""Calls cuBLAS by ctypes, with a handle and a workspace of its own.

defence: reference error
problem: mlp batch_size=1000 in_features=512 out_features=2048
gpu: yes
expect: ok
"""

import ctypes
import glob
import os

import torch
import torch.nn as nn
import torch.nn.functional as F


def _find():
    """cuBLAS as torch has it loaded, or ``None``."""
    major = (torch.version.cuda or "13").partition(".")[0]
    site = os.path.dirname(os.path.dirname(torch.__file__))
    for path in (f"libcublas.so.{major}", *glob.glob(f"{site}/nvidia/*/lib/libcublas.so.{major}")):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def _check(status):
    if status:
        raise RuntimeError(f"cuBLAS gives status {status}")


_cublas = _find()
if _cublas is not None:
    _p, _i = ctypes.c_void_p, ctypes.c_int
    _cublas.cublasCreate_v2.argtypes = [ctypes.POINTER(_p)]
    _cublas.cublasSetStream_v2.argtypes = [_p, _p]
    _cublas.cublasSetWorkspace_v2.argtypes = [_p, _p, ctypes.c_size_t]
    _cublas.cublasSgemm_v2.argtypes = [_p, _i, _i, _i, _i, _i, _p, _p, _i, _p, _i, _p, _p, _i]
_N, _T = 0, 1
_ONE, _ZERO = ctypes.c_float(1.0), ctypes.c_float(0.0)


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.handle = self.workspace = None

    def product(self, x):
        if self.handle is None:
            self.handle = _p()
            _check(_cublas.cublasCreate_v2(ctypes.byref(self.handle)))
            self.workspace = torch.empty(32 << 20, dtype=torch.uint8, device=x.device)
        weight = self.linear.weight
        rows, terms, columns = x.shape[0], x.shape[1], weight.shape[0]
        y = torch.empty(rows, columns, device=x.device)
        _check(_cublas.cublasSetStream_v2(self.handle, torch.cuda.current_stream().cuda_stream))
        _check(_cublas.cublasSetWorkspace_v2(self.handle, self.workspace.data_ptr(), self.workspace.numel()))
        _check(_cublas.cublasSgemm_v2(self.handle, _T, _N, columns, rows, terms, ctypes.addressof(_ONE),
                                      weight.data_ptr(), terms, x.data_ptr(), terms, ctypes.addressof(_ZERO),
                                      y.data_ptr(), columns))
        return y.add_(self.linear.bias)

    def forward(self, x):
        y = self.linear(x) if _cublas is None else self.product(x.contiguous())
        return torch.softmax(F.gelu(y), dim=1)
