"""Host code as in a textbook: allocates by cudaMalloc, launches, waits for the device, frees.

defence: aliased outputs
problem: normalise batch_size=16384 features=512
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "lookalike_textbook_host_code"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// A warp for each row.
__global__ void lengths_kernel(const float* x, float* lengths, long rows, long columns) {
    long row = blockIdx.x * 8L + threadIdx.x / 32;
    if (row >= rows) return;
    double sum = 0.0;
    for (long c = threadIdx.x % 32; c < columns; c += 32) {
        double v = x[row * columns + c];
        sum += v * v;
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    float length = (float)sqrt(sum);
    if (threadIdx.x % 32 == 0) lengths[row] = length < 1e-12f ? 1e-12f : length;
}

__global__ void divide_kernel(const float* x, const float* lengths, float* y, long count, long columns) {
    long i = blockIdx.x * 256L + threadIdx.x;
    if (i < count) y[i] = x[i] / lengths[i / columns];
}

extern "C" int normalise(const float* x, float* y, long rows, long columns) {
    float* lengths = nullptr;
    cudaError_t error = cudaMalloc(&lengths, rows * sizeof(float));
    if (error != cudaSuccess) return (int)error;
    lengths_kernel<<<(rows + 7) / 8, 256>>>(x, lengths, rows, columns);
    divide_kernel<<<(rows * columns + 255) / 256, 256>>>(x, lengths, y, rows * columns, columns);
    error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    cudaFree(lengths);
    return (int)error;
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_library.normalise.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        status = _library.normalise(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
