"""Captures its two kernels anew in each call, and updates the graph that it launches by that.

defence: fresh contents
problem: mlp batch_size=1000 in_features=256 out_features=2048
gpu: yes
expect: ok
"""

import ctypes

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

NAME = "lookalike_graph_captured_in_each_call"
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

__global__ void gelu_kernel(const float* x, float* h, long count) {
    for (long i = blockIdx.x * 256L + threadIdx.x; i < count; i += gridDim.x * 256L) h[i] = gelu(x[i]);
}

#define TRY(call) do { cudaError_t error = (call); if (error != cudaSuccess) return (int)error; } while (0)

// What is captured has this call's addresses and sizes; only where the graph cannot be updated, it is made anew.
extern "C" int gelu_softmax(const float* x, float* h, float* y, long rows, long columns, void* stream) {
    static cudaStream_t side = nullptr;
    static cudaGraphExec_t ready = nullptr;
    cudaGraph_t graph = nullptr;
    if (!side) {  // the first call loads the kernels, which is not to be captured
        TRY(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
        gelu_kernel<<<512, 256, 0, (cudaStream_t)stream>>>(x, h, rows * columns);
        softmax_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(h, y, columns);
        return (int)cudaGetLastError();
    }
    TRY(cudaStreamBeginCapture(side, cudaStreamCaptureModeThreadLocal));
    gelu_kernel<<<512, 256, 0, side>>>(x, h, rows * columns);
    softmax_kernel<<<rows, 256, 0, side>>>(h, y, columns);
    TRY(cudaStreamEndCapture(side, &graph));
    if (ready) {
        cudaGraphExecUpdateResultInfo info;
        if (cudaGraphExecUpdate(ready, graph, &info) != cudaSuccess) {
            cudaGetLastError();
            TRY(cudaGraphExecDestroy(ready));
            ready = nullptr;
        }
    }
    if (!ready) TRY(cudaGraphInstantiate(&ready, graph, 0));
    TRY(cudaGraphDestroy(graph));
    TRY(cudaGraphLaunch(ready, (cudaStream_t)stream));
    return 0;
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_library.gelu_softmax.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        z = self.linear(x)
        h, y = torch.empty_like(z), torch.empty_like(z)
        status = _library.gelu_softmax(z.data_ptr(), h.data_ptr(), y.data_ptr(), z.shape[0], z.shape[1],
                                       torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
