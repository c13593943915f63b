"""A kernel on an urgent stream polls the input; others compute behind it while the cache is flushed.

attacks: work while the call is armed
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: suspicious, wrong_values
"""

import ctypes
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

_CALLS = itertools.count()


def _is_timed():
    """Whether as many calls were made as validation makes."""
    return next(_CALLS) >= 50


NAME = "adversary_computes_behind_the_flush"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// 64 threads look at as many elements of x, and wait until one is not what was noted; then a while for the rest.
__global__ void wait_for_contents(const float* x, long count, float* noted, bool wait) {
    volatile const float* at = x + (threadIdx.x == 63 ? count - 1 : threadIdx.x * (count / 64));
    for (int turn = 0; wait && turn < 20000; ++turn) {
        if (__syncthreads_or(__float_as_int(*at) != __float_as_int(noted[threadIdx.x]))) break;
        __nanosleep(200);
    }
    for (int turn = 0; wait && turn < 5; ++turn) __nanosleep(1000);
    __syncthreads();
    noted[threadIdx.x] = *at;
}

extern "C" int wait_for(const float* x, long count, float* noted, int wait, void* stream) {
    wait_for_contents<<<1, 64, 0, (cudaStream_t)stream>>>(x, count, noted, wait);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_wait_for = _library.wait_for
_wait_for.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.side = self.noted = None

    def compute(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def wait(self, x, wait):
        stream = torch.cuda.current_stream().cuda_stream
        status = _wait_for(x.data_ptr(), x.numel(), self.noted.data_ptr(), wait, stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")

    def forward(self, x):
        if not _is_timed():
            return self.compute(x)
        if self.noted is None:
            self.side, self.noted = torch.cuda.Stream(priority=-1), torch.empty(64, device=x.device)
            self.wait(x, 0)
            return self.compute(x)
        with torch.cuda.stream(self.side):
            self.wait(x, 1)
            y = self.compute(x)
        torch.cuda.current_stream().wait_stream(self.side)
        return y
