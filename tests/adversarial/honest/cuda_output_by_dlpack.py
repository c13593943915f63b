"""Its output is fresh memory of the driver's pool, handed over by DLPack, which frees it in the stream's order.

defence: aliased outputs
problem: norm_in_float32 batch_size=8192 features=1024
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "lookalike_output_by_dlpack"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>
#include <cstdint>

struct Tensor {  // DLTensor
    void* data;
    int32_t device_type, device_id, dimensions;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t offset;
};

struct Managed {  // DLManagedTensor
    Tensor tensor;
    void* context;
    void (*deleter)(Managed*);
};

struct Owned {
    Managed managed;
    int64_t shape[2], strides[2];
    cudaStream_t stream;
};

static void give_back(Managed* managed) {
    Owned* owned = (Owned*)managed->context;
    cudaFreeAsync(managed->tensor.data, owned->stream);
    delete owned;
}

__device__ float reduce(float value) {
    __shared__ float warps[8];
    for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < 8; ++i) sum += warps[i];
    __syncthreads();
    return sum;
}

__global__ void norm_kernel(const float* x, const float* scale, const float* shift, float* y, long columns) {
    x += blockIdx.x * columns;
    y += blockIdx.x * columns;
    float sum = 0.0f, squares = 0.0f;
    for (long c = threadIdx.x; c < columns; c += 256) sum += x[c];
    float mean = reduce(sum) / columns;
    for (long c = threadIdx.x; c < columns; c += 256) squares += (x[c] - mean) * (x[c] - mean);
    float inverse = 1.0f / sqrtf(reduce(squares) / columns + 1e-5f);
    for (long c = threadIdx.x; c < columns; c += 256) y[c] = (x[c] - mean) * inverse * scale[c] + shift[c];
}

extern "C" void* layer_norm(const float* x, const float* scale, const float* shift, long rows, long columns,
                            void* stream) {
    static bool keeps = false;
    int device = 0;
    cudaGetDevice(&device);
    if (!keeps) {  // what is freed is kept for the next call
        cudaMemPool_t pool;
        uint64_t all = UINT64_MAX;
        cudaDeviceGetDefaultMemPool(&pool, device);
        cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all);
        keeps = true;
    }
    void* y = nullptr;
    if (cudaMallocAsync(&y, rows * columns * 4, (cudaStream_t)stream) != cudaSuccess) return nullptr;
    norm_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(x, scale, shift, (float*)y, columns);
    if (cudaGetLastError() != cudaSuccess) {
        cudaFreeAsync(y, (cudaStream_t)stream);
        return nullptr;
    }
    Owned* owned = new Owned{};
    owned->shape[0] = rows;
    owned->shape[1] = columns;
    owned->strides[0] = columns;
    owned->strides[1] = 1;
    owned->stream = (cudaStream_t)stream;
    owned->managed.tensor = Tensor{y, 2, device, 2, 2, 32, 1, owned->shape, owned->strides, 0};
    owned->managed.context = owned;
    owned->managed.deleter = give_back;
    return &owned->managed;
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_library.layer_norm.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2 + [ctypes.c_void_p]
_library.layer_norm.restype = ctypes.c_void_p
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_KIND = b"dltensor"  # a capsule keeps the address of its name


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(features))
        self.shift = nn.Parameter(torch.zeros(features))

    def forward(self, x):
        x = x.contiguous()
        managed = _library.layer_norm(x.data_ptr(), self.scale.data_ptr(), self.shift.data_ptr(), x.shape[0],
                                      x.shape[1], torch.cuda.current_stream().cuda_stream)
        if not managed:
            raise RuntimeError("the launch failed")
        return torch.from_dlpack(_capsule(managed, _KIND, None))
