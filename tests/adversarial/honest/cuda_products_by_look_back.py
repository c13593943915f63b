"""A scan in one pass: blocks take tiles by a ticket, and look back at those before; set to zero in each call.

defence: reference error
problem: products batch_size=1024 features=4096
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "lookalike_products_by_look_back"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// Tiles of 128 x 4 elements. Of each, a flag says what is known: nothing, its own product, or that of all before it.
__global__ __launch_bounds__(128) void scan_kernel(const float* x, float* y, int* ticket, int* flags, double* own,
                                                   double* all, long columns, long tiles) {
    __shared__ double warps[4], before;
    __shared__ int taken;
    if (threadIdx.x == 0) taken = atomicAdd(ticket, 1);
    __syncthreads();
    const long tile = taken, row = tile / tiles, first = tile % tiles * 512 + threadIdx.x * 4;
    double each[4], product = 1.0;
    for (int i = 0; i < 4; ++i) {
        if (first + i < columns) product *= (double)x[row * columns + first + i];
        each[i] = product;
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double sofar = product;
    for (int step = 1; step < 32; step *= 2) {
        double other = __shfl_up_sync(0xffffffffu, sofar, step);
        if (lane >= step) sofar *= other;
    }
    if (lane == 31) warps[warp] = sofar;
    double mine = __shfl_up_sync(0xffffffffu, sofar, 1);
    if (lane == 0) mine = 1.0;
    __syncthreads();
    for (int i = 0; i < warp; ++i) mine *= warps[i];
    if (threadIdx.x == 0) {
        double whole = warps[0] * warps[1] * warps[2] * warps[3], found = 1.0;
        if (tile % tiles) {
            *(volatile double*)&own[tile] = whole;
            __threadfence();
            atomicExch(&flags[tile], 1);
            for (long earlier = tile - 1;; --earlier) {
                int flag;
                while (!(flag = atomicAdd(&flags[earlier], 0))) __nanosleep(32);
                __threadfence();
                found *= flag == 2 ? *(volatile double*)&all[earlier] : *(volatile double*)&own[earlier];
                if (flag == 2) break;
            }
        }
        *(volatile double*)&all[tile] = found * whole;
        __threadfence();
        atomicExch(&flags[tile], 2);
        before = found;
    }
    __syncthreads();
    const double start = before * mine;
    for (int i = 0; i < 4; ++i)
        if (first + i < columns) y[row * columns + first + i] = (float)(start * each[i]);
}

extern "C" int products(const float* x, float* y, int* counters, double* sums, long rows, long columns, void* stream) {
    long tiles = (columns + 511) / 512, count = rows * tiles;
    cudaMemsetAsync(counters, 0, (count + 1) * sizeof(int), (cudaStream_t)stream);
    scan_kernel<<<count, 128, 0, (cudaStream_t)stream>>>(x, y, counters, counters + 1, sums, sums + count, columns,
                                                         tiles);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_library.products.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 2 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        count = x.shape[0] * -(-x.shape[1] // 512)
        counters = torch.empty(count + 1, dtype=torch.int32, device=x.device)
        sums = torch.empty(2 * count, dtype=torch.float64, device=x.device)
        status = _library.products(x.data_ptr(), y.data_ptr(), counters.data_ptr(), sums.data_ptr(), *x.shape,
                                   torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
