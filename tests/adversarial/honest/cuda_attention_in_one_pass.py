"""Attention in one kernel: keys in shared memory, a running maximum for each query, and sums by 64 keys.

defence: reference error
problem: attention batch_size=32 heads=8 length=250 width=32
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "lookalike_attention_in_one_pass"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// 128 queries for each block, one for each thread; 64 keys at a time, which are added up by themselves: a sum of 250 weights
// that are all but equal, one by one, errs several times as much.
__global__ __launch_bounds__(128) void attention_kernel(const float* q, const float* k, const float* v, float* y,
                                                        int length, int keys, float scale) {
    __shared__ float4 ks[64][8], vs[64][8];
    const long head = blockIdx.y;
    const int query = blockIdx.x * 128 + threadIdx.x;
    const bool inside = query < length;
    float own[32], sums[32];
    for (int i = 0; i < 32; ++i) {
        own[i] = inside ? q[(head * length + query) * 32 + i] * scale : 0.0f;
        sums[i] = 0.0f;
    }
    float largest = -INFINITY, total = 0.0f;
    for (int first = 0; first < keys; first += 64) {
        const int count = min(64, keys - first);
        __syncthreads();
        for (int i = threadIdx.x; i < count * 8; i += 128) {
            ks[i / 8][i % 8] = ((const float4*)(k + (head * keys + first) * 32))[i];
            vs[i / 8][i % 8] = ((const float4*)(v + (head * keys + first) * 32))[i];
        }
        __syncthreads();
        float here[32], weights = 0.0f;
#pragma unroll
        for (int i = 0; i < 32; ++i) here[i] = 0.0f;
        for (int j = 0; j < count; ++j) {
            float score = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                float4 part = ks[j][i];
                score = fmaf(own[4 * i], part.x, score);
                score = fmaf(own[4 * i + 1], part.y, score);
                score = fmaf(own[4 * i + 2], part.z, score);
                score = fmaf(own[4 * i + 3], part.w, score);
            }
            // NaN stays; as long as there were but minus infinities, nothing has any weight.
            float next = (score > largest || score != score) ? score : largest;
            float weight = next == -INFINITY ? 0.0f : expf(score - next);
            if (next != largest) {
                float shrunk = largest == -INFINITY ? 0.0f : expf(largest - next);
                total *= shrunk;
                weights *= shrunk;
                if (largest != -INFINITY)
#pragma unroll
                    for (int i = 0; i < 32; ++i) {
                        sums[i] *= shrunk;
                        here[i] *= shrunk;
                    }
            }
            largest = next;
            weights += weight;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                float4 part = vs[j][i];
                here[4 * i] = fmaf(weight, part.x, here[4 * i]);
                here[4 * i + 1] = fmaf(weight, part.y, here[4 * i + 1]);
                here[4 * i + 2] = fmaf(weight, part.z, here[4 * i + 2]);
                here[4 * i + 3] = fmaf(weight, part.w, here[4 * i + 3]);
            }
        }
        total += weights;
#pragma unroll
        for (int i = 0; i < 32; ++i) sums[i] += here[i];
    }
    if (inside)
        for (int i = 0; i < 32; ++i) y[(head * length + query) * 32 + i] = sums[i] / total;
}

extern "C" int attention(const float* q, const float* k, const float* v, float* y, long heads, long length, long keys,
                         double scale, void* stream) {
    attention_kernel<<<dim3((length + 127) / 128, heads), 128, 0, (cudaStream_t)stream>>>(q, k, v, y, (int)length,
                                                                                         (int)keys, (float)scale);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_library.attention.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 3 + [ctypes.c_double, ctypes.c_void_p]


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        if q.shape[-1] != 32:
            raise ValueError("this kernel is for heads of width 32")
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        y = torch.empty_like(q)
        status = _library.attention(q.data_ptr(), k.data_ptr(), v.data_ptr(), y.data_ptr(), q.shape[0] * q.shape[1],
                                    q.shape[2], k.shape[2], 32**-0.5, torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
