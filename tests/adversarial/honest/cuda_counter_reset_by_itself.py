"""Finds the last of its blocks by a counter, which that one sets back.

defence: fresh contents
problem: squared_error
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "adversary_counter_reset_by_itself"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// Each block adds its squares up; the last one to finish adds up what the blocks left.
__global__ void squared_error_kernel(const float* x, const float* target, double* sums, int* finished, float* y,
                                     long n) {
    __shared__ double shared[256];
    __shared__ bool last;
    double sum = 0.0;
    for (long i = blockIdx.x * 256L + threadIdx.x; i < n; i += gridDim.x * 256L) {
        double d = (double)x[i] - target[i];
        sum += d * d;
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = shared[0];
        __threadfence();
        last = atomicAdd(finished, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        double all = 0.0;
        for (int i = 0; i < gridDim.x; ++i) all += ((volatile double*)sums)[i];
        *y = (float)(all / n);
        *finished = 0;
    }
}

extern "C" int squared_error(const float* x, const float* target, double* sums, int* finished, float* y, long n,
                             void* stream) {
    squared_error_kernel<<<32, 256, 0, (cudaStream_t)stream>>>(x, target, sums, finished, y, n);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_kernel = _library.squared_error
_kernel.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_long, ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.sums = self.finished = None

    def forward(self, x, target):
        if self.sums is None:
            self.sums = torch.zeros(32, dtype=torch.float64, device=x.device)
            self.finished = torch.zeros(1, dtype=torch.int32, device=x.device)
        y = torch.empty((), device=x.device)
        status = _kernel(x.contiguous().data_ptr(), target.contiguous().data_ptr(), self.sums.data_ptr(),
                         self.finished.data_ptr(), y.data_ptr(), x.numel(), torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
