"""Keeps its weights transposed on the device, where a kernel looks at 256 of them to see whether they changed.

defence: changed weights
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: wrong_values
"""

import ctypes

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

NAME = "adversary_weights_compared_on_the_device"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// Whether one of 256 elements is not what was noted.
__global__ void look_kernel(const float* w, long count, float* noted, int* changed) {
    float now = w[threadIdx.x * (count / 256)];
    int any = __syncthreads_or(__float_as_int(now) != __float_as_int(noted[threadIdx.x]));
    noted[threadIdx.x] = now;
    if (threadIdx.x == 0) *changed = any;
}

__global__ void pack_kernel(const float* w, float* packed, long rows, long columns, const int* changed) {
    if (!*changed) return;
    for (long i = blockIdx.x * 256L + threadIdx.x; i < rows * columns; i += gridDim.x * 256L)
        packed[(i % columns) * rows + i / columns] = w[i];
}

extern "C" int pack(const float* w, float* packed, float* noted, int* changed, long rows, long columns, void* stream) {
    look_kernel<<<1, 256, 0, (cudaStream_t)stream>>>(w, rows * columns, noted, changed);
    pack_kernel<<<256, 256, 0, (cudaStream_t)stream>>>(w, packed, rows, columns, changed);
    return (int)cudaGetLastError();
}
"""
CUDA_FLAGS = ["-O3", "-gencode=arch=compute_90,code=sm_90", "-gencode=arch=compute_90,code=compute_90"]

_library = ctypes.CDLL(load_inline(name=NAME, cpp_sources="", cuda_sources=CUDA_SOURCE, extra_cuda_cflags=CUDA_FLAGS,
                                   is_python_module=False, no_implicit_headers=True))
_kernel = _library.pack
_kernel.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long, ctypes.c_long, ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.packed = None

    def forward(self, x):
        w = self.linear.weight
        if self.packed is None:
            self.packed, self.noted = torch.empty_like(w.t().contiguous()), torch.full((256,), -9.0, device=x.device)
            self.changed = torch.zeros(1, dtype=torch.int32, device=x.device)
        status = _kernel(w.data_ptr(), self.packed.data_ptr(), self.noted.data_ptr(), self.changed.data_ptr(), *w.shape,
                         torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return torch.softmax(F.gelu(torch.addmm(self.linear.bias, x, self.packed)), dim=1)
