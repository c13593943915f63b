"""Batch norm in one kernel, by Welford's way, which also writes the running statistics and the counter.

defence: state after the call
problem: batch_norm batch_size=4096 in_features=256 out_features=512
mode: train
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "lookalike_batch_norm_by_welford"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// 32 columns for each block of 32 x 16 threads.
__global__ void norm_kernel(const float* x, const float* weight, const float* bias, const float* scale,
                            float* mean_kept,
                            float* variance_kept, long* steps, float* y, long rows, long columns, double momentum,
                            double epsilon) {
    __shared__ double counts[16][32], means[16][32], squares[16][32];
    const long column = blockIdx.x * 32L + threadIdx.x;
    double n = 0.0, mean = 0.0, square = 0.0;
    if (column < columns)
        for (long row = threadIdx.y; row < rows; row += 16) {
            double v = x[row * columns + column], d = v - mean;
            n += 1.0;
            mean += d / n;
            square += d * (v - mean);
        }
    counts[threadIdx.y][threadIdx.x] = n;
    means[threadIdx.y][threadIdx.x] = mean;
    squares[threadIdx.y][threadIdx.x] = square;
    __syncthreads();
    for (int step = 8; step; step /= 2) {
        if (threadIdx.y < step) {
            int i = threadIdx.y, j = threadIdx.y + step, t = threadIdx.x;
            double na = counts[i][t], nb = counts[j][t], all = na + nb;
            if (nb > 0.0) {
                double d = means[j][t] - means[i][t];
                means[i][t] += d * (nb / all);
                squares[i][t] += squares[j][t] + d * d * (na * nb / all);
                counts[i][t] = all;
            }
        }
        __syncthreads();
    }
    if (column >= columns) return;
    mean = means[0][threadIdx.x];
    double variance = squares[0][threadIdx.x] / rows, inverse = 1.0 / sqrt(variance + epsilon);
    if (threadIdx.y == 0) {
        mean_kept[column] = (float)((1.0 - momentum) * mean_kept[column] + momentum * mean);
        variance_kept[column] =
            (float)((1.0 - momentum) * variance_kept[column] + momentum * squares[0][threadIdx.x] / (rows - 1));
        if (column == 0) *steps += 1;
    }
    const double a = inverse * weight[column], b = bias[column];
    for (long row = threadIdx.y; row < rows; row += 16)
        y[row * columns + column] = (float)((x[row * columns + column] - mean) * a + b) * scale[column];
}

extern "C" int batch_norm(const float* x, const float* weight, const float* bias, const float* scale, float* mean,
                    float* variance, long* steps, float* y, long rows, long columns, double momentum, double epsilon,
                    void* stream) {
    norm_kernel<<<(columns + 31) / 32, dim3(32, 16), 0, (cudaStream_t)stream>>>(
        x, weight, bias, scale, mean, variance, steps, y, rows, columns, momentum, epsilon);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_library.batch_norm.argtypes = [ctypes.c_void_p] * 8 + [ctypes.c_long] * 2 + [ctypes.c_double] * 2 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.norm = nn.BatchNorm1d(out_features)
        self.scale = nn.Parameter(torch.ones(out_features))

    def forward(self, x):
        z = self.linear(x)
        if not self.training:
            return self.norm(z) * self.scale
        if z.shape[0] < 2:
            raise ValueError("more than one row is needed in train mode")
        norm, y = self.norm, torch.empty_like(z)
        status = _library.batch_norm(z.data_ptr(), norm.weight.data_ptr(), norm.bias.data_ptr(), self.scale.data_ptr(),
                               norm.running_mean.data_ptr(), norm.running_var.data_ptr(),
                               norm.num_batches_tracked.data_ptr(), y.data_ptr(), z.shape[0], z.shape[1],
                               norm.momentum, norm.eps, torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
