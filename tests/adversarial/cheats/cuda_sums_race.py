"""Splits the product along its terms over blocks, which add their sums to the same elements without atomics.

defence: repeated runs
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values, nondeterministic, suspicious
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

NAME = "adversary_sums_race"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// Each block takes 256 columns of a row and 32 of the terms.
__global__ void product_kernel(const float* x, const float* w, float* y, long terms, long columns) {
    long row = blockIdx.x, column = blockIdx.y * 256 + threadIdx.x, first = blockIdx.z * 32;
    if (column >= columns) return;
    float sum = 0.0f;
    for (long k = first; k < first + 32 && k < terms; ++k) sum += x[row * terms + k] * w[column * terms + k];
    y[row * columns + column] += sum;
}

extern "C" int product(const float* x, const float* w, float* y, long rows, long terms, long columns, void* stream) {
    dim3 grid(rows, (columns + 255) / 256, (terms + 31) / 32);
    product_kernel<<<grid, 256, 0, (cudaStream_t)stream>>>(x, w, y, terms, columns);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_kernel = _library.product
_kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 3 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        y = self.linear.bias.expand(x.shape[0], -1).contiguous()
        status = _kernel(x.contiguous().data_ptr(), self.linear.weight.data_ptr(), y.data_ptr(), *x.shape, y.shape[1],
                         torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return torch.softmax(F.gelu(y), dim=1)
