"""A kernel adds up and counts, and puts the count into host memory that it maps; the host waits for that.

defence: joined streams
problem: odd_outputs batch_size=2048 features=512
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "lookalike_count_in_pinned_memory"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

template <typename T>
__device__ T reduce(T value) {
    __shared__ T warps[8];
    for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    T sum = 0;
    for (int i = 0; i < 8; ++i) sum += warps[i];
    __syncthreads();
    return sum;
}

__global__ void parts_kernel(const float* x, long count_x, const float* y, long count_y, double* sums,
                             long long* counts) {
    double sum = 0.0;
    long long count = 0;
    for (long i = blockIdx.x * 256L + threadIdx.x; i < count_y; i += gridDim.x * 256L) sum += y[i];
    for (long i = blockIdx.x * 256L + threadIdx.x; i < count_x; i += gridDim.x * 256L) count += x[i] > 0.0f;
    sum = reduce(sum);
    count = reduce(count);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
        counts[blockIdx.x] = count;
    }
}

__global__ void total_kernel(const double* sums, const long long* counts, float* total, long long* on_the_host) {
    double sum = reduce(sums[threadIdx.x]);
    long long count = reduce(counts[threadIdx.x]);
    if (threadIdx.x == 0) {
        *total = (float)sum;
        *on_the_host = count;
        __threadfence_system();
    }
}

extern "C" long long sum_and_count(const float* x, long count_x, const float* y, long count_y, double* sums,
                                   long long* counts, float* total, void* stream) {
    static long long *host = nullptr, *mapped = nullptr;
    if (!host) {
        if (cudaHostAlloc(&host, sizeof(long long), cudaHostAllocMapped) != cudaSuccess) return -1;
        if (cudaHostGetDevicePointer(&mapped, host, 0) != cudaSuccess) return -1;
    }
    parts_kernel<<<256, 256, 0, (cudaStream_t)stream>>>(x, count_x, y, count_y, sums, counts);
    total_kernel<<<1, 256, 0, (cudaStream_t)stream>>>(sums, counts, total, mapped);
    if (cudaGetLastError() != cudaSuccess || cudaStreamSynchronize((cudaStream_t)stream) != cudaSuccess) return -1;
    return *(volatile long long*)host;
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_library.sum_and_count.argtypes = [ctypes.c_void_p, ctypes.c_long] * 2 + [ctypes.c_void_p] * 4
_library.sum_and_count.restype = ctypes.c_longlong


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        y, x = self.linear(x), x.contiguous()
        scratch = torch.empty(2, 256, dtype=torch.float64, device=x.device)
        total = torch.empty((), device=x.device)
        count = _library.sum_and_count(x.data_ptr(), x.numel(), y.data_ptr(), y.numel(), scratch[0].data_ptr(),
                                       scratch[1].data_ptr(), total.data_ptr(),
                                       torch.cuda.current_stream().cuda_stream)
        if count < 0:
            raise RuntimeError("the launch failed")
        return y, y[:, :0], [None, total, count]
