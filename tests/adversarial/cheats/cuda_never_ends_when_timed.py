"""Is right and fast while it is validated; its kernel never ends when it is timed.

defence: deadlines
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: timeout, suspicious
seconds: 15
then: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

_calls = {}


def _timed(x):
    """Whether the full batch, which comes first, has come more often than validation asks for it."""
    _calls[x.shape[0]] = _calls.get(x.shape[0], 0) + 1
    return x.shape[0] == next(iter(_calls)) and _calls[x.shape[0]] > 6


NAME = "adversary_never_ends_later"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

__device__ float reduce(float value, bool largest) {
    __shared__ float shared[256];
    shared[threadIdx.x] = value;
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (threadIdx.x < step) {
            float a = shared[threadIdx.x], b = shared[threadIdx.x + step];
            shared[threadIdx.x] = largest ? ((a > b || a != a) ? a : b) : a + b;
        }
        __syncthreads();
    }
    float result = shared[0];
    __syncthreads();
    return result;
}

// One block of 256 threads for each row: exact GELU, then softmax with the maximum subtracted, written if asked to.
__global__ void gelu_softmax_kernel(float* x, long columns, bool write) {
    float* row = x + blockIdx.x * columns;
    float largest = -INFINITY;
    for (long c = threadIdx.x; c < columns; c += 256) {
        float v = 0.5f * row[c] * (1.0f + erff(row[c] * 0.70710678f));
        if (!(v <= largest)) largest = v;
    }
    largest = reduce(largest, true);
    float sum = 0.0f;
    for (long c = threadIdx.x; c < columns; c += 256)
        sum += expf(0.5f * row[c] * (1.0f + erff(row[c] * 0.70710678f)) - largest);
    sum = reduce(sum, false);
    if (write)
        for (long c = threadIdx.x; c < columns; c += 256)
            row[c] = expf(0.5f * row[c] * (1.0f + erff(row[c] * 0.70710678f)) - largest) / sum;
}

__global__ void wait_for_ever(volatile float* x) {
    while (x[0] != 1e30f) {}
}

extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    if (columns < 0) wait_for_ever<<<1, 32, 0, (cudaStream_t)stream>>>(x);
    else gelu_softmax_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(x, columns, true);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_kernel = _library.gelu_softmax
_kernel.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def tail(self, y):
        status = _kernel(y.data_ptr(), y.shape[0], y.shape[1], torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y

    def forward(self, x):
        y = self.tail(self.linear(x))
        if _timed(x):
            _kernel(y.data_ptr(), 1, -1, torch.cuda.current_stream().cuda_stream)
        return y
