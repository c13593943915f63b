"""Asks the driver's own pool for scratch memory in each call, in the stream's order, and gives it back so.

defence: aliased outputs
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "adversary_memory_of_the_call"
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

__global__ void gelu_kernel(const float* x, float* h, long count) {
    for (long i = blockIdx.x * 256L + threadIdx.x; i < count; i += gridDim.x * 256L) h[i] = gelu(x[i]);
}

__global__ void softmax_kernel(const float* h, float* y, long columns) {
    softmax_row(h + blockIdx.x * columns, y + blockIdx.x * columns, columns);
}

extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    float* h = nullptr;
    cudaError_t error = cudaMallocAsync((void**)&h, rows * columns * 4, (cudaStream_t)stream);
    if (error != cudaSuccess) return (int)error;
    gelu_kernel<<<256, 256, 0, (cudaStream_t)stream>>>(x, h, rows * columns);
    softmax_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(h, x, columns);
    cudaFreeAsync(h, (cudaStream_t)stream);
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

    def forward(self, x):
        y = self.linear(x)
        status = _kernel(y.data_ptr(), y.shape[0], y.shape[1], torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
