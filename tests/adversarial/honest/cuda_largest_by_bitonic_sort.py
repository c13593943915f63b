"""Sorts each row in shared memory by bitonic exchanges, and returns transposed views of what it wrote.

defence: integer outputs
problem: largest batch_size=16384 features=1024 count=16
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "lookalike_largest_by_bitonic_sort"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>
#include <cstdint>

// Larger is larger; all NaN are the largest and alike, and so are both zeros.
__device__ uint32_t key(float v) {
    if (v != v) return 0xffffffffu;
    uint32_t bits = __float_as_uint(v == 0.0f ? 0.0f : v);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// A block for each row: keys and, where these are alike, the places from the first on, in falling order.
__global__ void largest_kernel(const float* x, float* values, long long* places, int rows, int columns, int width,
                               int count) {
    extern __shared__ unsigned long long items[];
    const float* row = x + (long)blockIdx.x * columns;
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        items[i] = i < columns ? (unsigned long long)key(row[i]) << 32 | (0xffffffffu - (uint32_t)i) : 0ull;
    __syncthreads();
    for (int size = 2; size <= width; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            for (int i = threadIdx.x; i < width; i += blockDim.x) {
                int other = i ^ step;
                if (other > i) {
                    unsigned long long a = items[i], b = items[other];
                    bool falling = (i & size) == 0;
                    if (falling ? a < b : a > b) {
                        items[i] = b;
                        items[other] = a;
                    }
                }
            }
            __syncthreads();
        }
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        uint32_t place = 0xffffffffu - (uint32_t)items[i];
        values[(long)i * rows + blockIdx.x] = row[place];
        places[(long)i * rows + blockIdx.x] = place;
    }
}

extern "C" int largest(const float* x, float* values, long long* places, long rows, long columns, long count,
                       void* stream) {
    int width = 2;
    while (width < columns) width *= 2;
    if (width * 8 > (48 << 10) || count > columns) return -1;
    largest_kernel<<<rows, 256, width * 8, (cudaStream_t)stream>>>(x, values, places, (int)rows, (int)columns, width,
                                                                     (int)count);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_library.largest.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 3 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.count = count

    def forward(self, x):
        x = x.contiguous()
        values = torch.empty(self.count, x.shape[0], device=x.device)
        places = torch.empty(self.count, x.shape[0], dtype=torch.int64, device=x.device)
        status = _library.largest(x.data_ptr(), values.data_ptr(), places.data_ptr(), *x.shape, self.count,
                                  torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return values.t(), places.t()
