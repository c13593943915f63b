"""Launches on a stream of the kind that waits for the default stream, and that the default stream waits for.

defence: joined streams
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "adversary_blocking_stream"
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

__global__ void gelu_softmax_kernel(float* x, long columns) {
    float* row = x + blockIdx.x * columns;
    for (long c = threadIdx.x; c < columns; c += 256) row[c] = gelu(row[c]);
    softmax_row(row, row, columns);
}

// Behind work on the default stream, and before what comes behind it there; other streams are joined by an event.
extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    static cudaStream_t own = nullptr;
    static cudaEvent_t event;
    if (!own) {
        cudaStreamCreate(&own);
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    }
    if (stream) {
        cudaEventRecord(event, (cudaStream_t)stream);
        cudaStreamWaitEvent(own, event, 0);
    }
    gelu_softmax_kernel<<<rows, 256, 0, own>>>(x, columns);
    if (stream) {
        cudaEventRecord(event, own);
        cudaStreamWaitEvent((cudaStream_t)stream, event, 0);
    }
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
