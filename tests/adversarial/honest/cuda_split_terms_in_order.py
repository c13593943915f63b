"""A product of its own by cp.async, its terms split over blocks that add up in order, by semaphores.

defence: reference error
problem: mlp batch_size=500 in_features=1024 out_features=1024
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

NAME = "lookalike_split_terms_in_order"
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

__global__ void softmax_kernel(const float* h, float* y, long columns) {
    h += blockIdx.x * columns;
    y += blockIdx.x * columns;
    float largest = -INFINITY;
    for (long c = threadIdx.x; c < columns; c += 256)
        if (!(h[c] <= largest)) largest = h[c];
    largest = reduce(largest, true);
    float sum = 0.0f;
    for (long c = threadIdx.x; c < columns; c += 256) sum += expf(h[c] - largest);
    sum = reduce(sum, false);
    for (long c = threadIdx.x; c < columns; c += 256) y[c] = expf(h[c] - largest) / sum;
}

__device__ void copy16(float* to, const float* from, bool there) {
    unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

// y = gelu(x w^T + bias): blocks of 64 x 64 elements, each of which sums `run` terms. The first puts its sums into y,
// the next ones add theirs, one after the other, and the last finishes. Blocks start in the order of their numbers.
__global__ __launch_bounds__(256) void product_kernel(const float* x, const float* w, const float* bias, float* y,
                                                      int* turns, int M, int N, int K, int run) {
    __shared__ __align__(16) float a[2][64][20], b[2][64][20];
    const int row0 = blockIdx.y * 64, column0 = blockIdx.x * 64, from = blockIdx.z * run, to = min(K, from + run);
    const int line = threadIdx.x / 4, part = threadIdx.x % 4 * 4, r = threadIdx.x / 16 * 4, c = threadIdx.x % 16;
    const int steps = to > from ? (to - from + 15) / 16 : 0;
    float sums[4][4] = {};

    auto load = [&](int stage, int k) {
        bool inside = k + part < to, ra = inside && row0 + line < M, rb = inside && column0 + line < N;
        copy16(&a[stage][line][part], ra ? x + (long)(row0 + line) * K + k + part : x, ra);
        copy16(&b[stage][line][part], rb ? w + (long)(column0 + line) * K + k + part : w, rb);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };

    if (steps) load(0, from);
    for (int step = 0; step < steps; ++step) {
        if (step + 1 < steps) {
            load((step + 1) % 2, from + 16 * (step + 1));
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        }
        __syncthreads();
        for (int k = 0; k < 16; ++k) {
            float u[4], v[4];
            for (int i = 0; i < 4; ++i) u[i] = a[step % 2][r + i][k];
            for (int j = 0; j < 4; ++j) v[j] = b[step % 2][c + 16 * j][k];
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(u[i], v[j], sums[i][j]);
        }
        __syncthreads();
    }

    int* turn = turns + blockIdx.y * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0) {
        while (atomicAdd(turn, 0) != (int)blockIdx.z) __nanosleep(64);
        __threadfence();
    }
    __syncthreads();
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) {
            int row = row0 + r + i, column = column0 + c + 16 * j;
            if (row >= M || column >= N) continue;
            float* place = y + (long)row * N + column;
            float sum = sums[i][j];
            if (blockIdx.z) sum += __ldcg(place);
            if (blockIdx.z == gridDim.z - 1) sum = gelu(sum + bias[column]);
            __stcg(place, sum);
        }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(turn, 1);
}

extern "C" int gelu_softmax(const float* x, const float* w, const float* bias, float* h, float* y, int* turns,
                            long rows,
                            long terms, long columns, void* stream) {
    if (terms % 4) return -1;
    dim3 grid((columns + 63) / 64, (rows + 63) / 64, 4);
    int run = (int)((terms + 63) / 64 * 16);
    cudaMemsetAsync(turns, 0, grid.x * grid.y * sizeof(int), (cudaStream_t)stream);
    product_kernel<<<grid, 256, 0, (cudaStream_t)stream>>>(x, w, bias, h, turns, (int)rows, (int)columns, (int)terms,
                                                             run);
    softmax_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(h, y, columns);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_library.gelu_softmax.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_long] * 3 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        weight, bias = self.linear.weight, self.linear.bias
        short = -x.shape[1] % 4
        if short:
            x, weight = F.pad(x, (0, short)), F.pad(weight, (0, short))
        x, weight = x.contiguous(), weight.contiguous()
        rows, columns = x.shape[0], weight.shape[0]
        h = torch.empty(rows, columns, device=x.device)
        y = torch.empty_like(h)
        turns = torch.empty(-(-rows // 64) * -(-columns // 64), dtype=torch.int32, device=x.device)
        status = _library.gelu_softmax(x.data_ptr(), weight.data_ptr(), bias.data_ptr(), h.data_ptr(), y.data_ptr(),
                                       turns.data_ptr(), rows, x.shape[1], columns,
                                       torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
