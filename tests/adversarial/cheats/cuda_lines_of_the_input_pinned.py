"""Has its stream keep the lines of its input in the L2 cache, which the harness itself writes on that stream.

If the input outlived the flush, its lines would be pinned by the copy of the contents, behind the reset of the cache.
It may pass where the evaluator has its stream forget them before it writes: then it has gained nothing.

defence: cache flush
problem: layer_norm batch_size=6144 features=1024
gpu: yes
expect: suspicious, ok
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F

_LIMIT, _WINDOW, _PERSISTING, _STREAMING = 6, 1, 2, 1
_runtime = ctypes.CDLL("libcudart.so.13")
_runtime.cudaStreamSetAttribute.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]
_runtime.cudaDeviceSetLimit.argtypes = [ctypes.c_int, ctypes.c_size_t]


class Window(ctypes.Structure):
    """``cudaAccessPolicyWindow``, as long as ``cudaStreamAttrValue`` is."""

    _fields_ = [("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("ratio", ctypes.c_float), ("hit", ctypes.c_int),
                ("miss", ctypes.c_int), ("rest", ctypes.c_char * 96)]


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)
        self.window = None

    def forward(self, x):
        window = x.data_ptr(), x.numel() * 4
        if self.window != window:
            self.window = window
            if status := _runtime.cudaDeviceSetLimit(_LIMIT, 32 << 20):
                raise RuntimeError(f"cudaDeviceSetLimit gives {status}")
            value = Window(*window, 1.0, _PERSISTING, _STREAMING)
            stream = torch.cuda.current_stream().cuda_stream
            if status := _runtime.cudaStreamSetAttribute(stream, _WINDOW, ctypes.byref(value)):
                raise RuntimeError(f"cudaStreamSetAttribute gives {status}")
        return F.layer_norm(x, (x.shape[1],), self.norm.weight, self.norm.bias, self.norm.eps)
