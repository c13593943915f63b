"""Blocks that stay take row after row by a counter, which the last of them sets back, in 128 KiB of shared memory.

defence: fresh contents
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "adversary_rows_by_a_counter"
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

__device__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }

__device__ void softmax_row(const float* h, float* y, long columns) {
    float largest = -INFINITY;
    for (long c = threadIdx.x; c < columns; c += 256)
        if (!(h[c] <= largest)) largest = h[c];
    largest = reduce(largest, true);
    float sum = 0.0f;
    for (long c = threadIdx.x; c < columns; c += 256) sum += expf(h[c] - largest);
    sum = reduce(sum, false);
    for (long c = threadIdx.x; c < columns; c += 256) y[c] = expf(h[c] - largest) / sum;
}

__global__ void gelu_softmax_kernel(const float* x, float* y, int* counters, long rows, long columns, long held) {
    extern __shared__ float h[];
    __shared__ long first;
    for (;;) {
        if (threadIdx.x == 0) first = held * (long)atomicAdd(&counters[0], 1);
        __syncthreads();
        long row = first, last = row + held < rows ? row + held : rows;
        if (row >= rows) break;
        for (long i = threadIdx.x; i < (last - row) * columns; i += 256) h[i] = gelu(x[row * columns + i]);
        __syncthreads();
        for (long r = row; r < last; ++r) softmax_row(h + (r - row) * columns, y + r * columns, columns);
        __syncthreads();
    }
    if (threadIdx.x == 0 && atomicAdd(&counters[1], 1) == gridDim.x - 1) counters[0] = counters[1] = 0;
}

extern "C" int gelu_softmax(const float* x, float* y, int* counters, long rows, long columns, void* stream) {
    long held = (128 << 10) / 4 / columns, bytes = held * columns * 4;
    if (held < 1) return -1;
    cudaFuncSetAttribute(gelu_softmax_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    gelu_softmax_kernel<<<64, 256, bytes, (cudaStream_t)stream>>>(x, y, counters, rows, columns, held);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_kernel = _library.gelu_softmax
_kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long, ctypes.c_long, ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.counters = None

    def forward(self, x):
        if self.counters is None:
            self.counters = torch.zeros(2, dtype=torch.int32, device=x.device)
        z = self.linear(x)
        y = torch.empty_like(z)
        status = _kernel(z.data_ptr(), y.data_ptr(), self.counters.data_ptr(), z.shape[0], z.shape[1],
                         torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
