"""Four blocks share a row, and each other's maxima and sums by distributed shared memory.

defence: reference error
problem: mlp batch_size=1000 in_features=256 out_features=8192
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "lookalike_cluster_softmax"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__device__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }
__device__ float larger(float a, float b) { return (a > b || a != a) ? a : b; }

template <bool LARGEST>
__device__ float combine(float a, float b) { return LARGEST ? larger(a, b) : a + b; }

template <bool LARGEST>
__device__ float reduce(cg::cluster_group& cluster, float value, float* warps, float* own) {
    for (int step = 16; step; step /= 2) value = combine<LARGEST>(value, __shfl_xor_sync(0xffffffffu, value, step));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 8; ++i) value = combine<LARGEST>(value, warps[i]);
        *own = value;
    }
    cluster.sync();
    float result = *cluster.map_shared_rank(own, 0);
    for (int i = 1; i < 4; ++i) result = combine<LARGEST>(result, *cluster.map_shared_rank(own, i));
    cluster.sync();  // nobody leaves, or writes again, while others read
    return result;
}

__global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(256)
gelu_softmax_kernel(const float* x, float* y, long columns, long chunk) {
    extern __shared__ float h[];
    __shared__ float warps[8], own;
    cg::cluster_group cluster = cg::this_cluster();
    long row = blockIdx.x / 4, first = cluster.block_rank() * chunk;
    long count = columns - first < chunk ? columns - first : chunk;
    x += row * columns + first;
    y += row * columns + first;
    float largest = -INFINITY;
    for (long c = threadIdx.x; c < count; c += 256) {
        h[c] = gelu(x[c]);
        largest = larger(h[c], largest);
    }
    largest = reduce<true>(cluster, largest, warps, &own);
    float sum = 0.0f;
    for (long c = threadIdx.x; c < count; c += 256) {
        h[c] = expf(h[c] - largest);
        sum += h[c];
    }
    sum = reduce<false>(cluster, sum, warps, &own);
    for (long c = threadIdx.x; c < count; c += 256) y[c] = h[c] / sum;
}

extern "C" int gelu_softmax(const float* x, float* y, long rows, long columns, void* stream) {
    long chunk = (columns + 3) / 4;
    if (chunk * 4 > (40 << 10)) return -1;
    gelu_softmax_kernel<<<rows * 4, 256, chunk * 4, (cudaStream_t)stream>>>(x, y, columns, chunk);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_library.gelu_softmax.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        z = self.linear(x)
        y = torch.empty_like(z)
        status = _library.gelu_softmax(z.data_ptr(), y.data_ptr(), z.shape[0], z.shape[1],
                                       torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
