"""A kernel that lets the element behind its input into its sum.

defence: fences, reading
default: yes
problem: squared_error
gpu: yes
expect: wrong_values, runtime_error, crashed
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "adversary_past_the_input"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// One block: the mean of squared differences; one element too many is read, and counts next to nothing.
__global__ void squared_error_kernel(const float* x, const float* target, float* y, long n) {
    __shared__ double shared[256];
    double sum = 0.0;
    for (long i = threadIdx.x; i <= n; i += 256) {
        double d = (double)x[i] - target[i];
        sum += d * d * (i < n ? 1.0 : 1e-30);
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) *y = (float)(shared[0] / n);
}

extern "C" int squared_error(const float* x, const float* target, float* y, long n, void* stream) {
    squared_error_kernel<<<1, 256, 0, (cudaStream_t)stream>>>(x, target, y, n);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_library.squared_error.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long, ctypes.c_void_p]


class ModelNew(nn.Module):
    def forward(self, x, target):
        y = torch.empty((), device=x.device)
        _library.squared_error(x.data_ptr(), target.data_ptr(), y.data_ptr(), x.numel(),
                               torch.cuda.current_stream().cuda_stream)
        return y
