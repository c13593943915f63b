"""Starts the softmax by a programmatic dependent launch, which waits before it reads what the kernel before it writes.

defence: reference error
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "adversary_dependent_launch"
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

__global__ void gelu_kernel(const float* x, float* h, long columns) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (long c = threadIdx.x; c < columns; c += 256) h[blockIdx.x * columns + c] = gelu(x[blockIdx.x * columns + c]);
}

__global__ void softmax_kernel(const float* h, float* y, long columns) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    softmax_row(h + blockIdx.x * columns, y + blockIdx.x * columns, columns);
}

// Both are launched so: the first may start before the library's product has ended, and waits for it.
extern "C" int gelu_softmax(const float* x, float* h, float* y, long rows, long columns, void* stream) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(rows);
    config.blockDim = dim3(256);
    config.stream = (cudaStream_t)stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, gelu_kernel, x, h, columns);
    cudaLaunchKernelEx(&config, softmax_kernel, (const float*)h, y, columns);
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

    def forward(self, x):
        z = self.linear(x)
        h, y = torch.empty_like(z), torch.empty_like(z)
        status = _kernel(z.data_ptr(), h.data_ptr(), y.data_ptr(), z.shape[0], z.shape[1],
                         torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
