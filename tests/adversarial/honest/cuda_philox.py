"""Drops by a Philox of its own, whose seed and offset are those of torch's generator, which it moves on.

defence: moments of random operators
problem: dropout batch_size=2048 in_features=256 out_features=512
mode: train
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "lookalike_philox"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>
#include <cstdint>

__device__ uint4 philox(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; ++round) {
        uint32_t high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
        uint32_t high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
        counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

// Four elements for each thread; what is dropped is multiplied by zero, as PyTorch does.
__global__ void dropout_kernel(const float* x, float* y, long count, uint64_t seed, uint64_t offset, uint32_t below,
                               float factor) {
    long i = blockIdx.x * 256L + threadIdx.x;
    if (4 * i >= count) return;
    uint4 drawn = philox(make_uint4((uint32_t)i, (uint32_t)(i >> 32), (uint32_t)offset, (uint32_t)(offset >> 32)),
                         make_uint2((uint32_t)seed, (uint32_t)(seed >> 32)));
    uint32_t each[4] = {drawn.x, drawn.y, drawn.z, drawn.w};
    for (int j = 0; j < 4; ++j)
        if (4 * i + j < count) y[4 * i + j] = x[4 * i + j] * (each[j] >= below ? factor : 0.0f);
}

extern "C" int dropout(const float* x, float* y, long count, uint64_t seed, uint64_t offset, double probability,
                       double factor, void* stream) {
    dropout_kernel<<<(count + 1023) / 1024, 256, 0, (cudaStream_t)stream>>>(
        x, y, count, seed, offset, (uint32_t)(probability * 4294967296.0), (float)(factor / (1.0 - probability)));
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_library.dropout.argtypes = [
    *[ctypes.c_void_p] * 2, ctypes.c_long, *[ctypes.c_uint64] * 2, *[ctypes.c_double] * 2, ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.probability = 0.3

    def forward(self, x):
        z = self.linear(x)
        if not self.training:
            return z * 2.0
        generator = torch.cuda.default_generators[z.device.index]
        seed, offset = generator.initial_seed(), generator.get_offset()
        generator.set_offset(offset + 4)
        y = torch.empty_like(z)
        status = _library.dropout(z.data_ptr(), y.data_ptr(), z.numel(), seed & (2**64 - 1), offset, self.probability,
                                  2.0, torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
