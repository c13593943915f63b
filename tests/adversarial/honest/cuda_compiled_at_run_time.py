"""Compiles its kernel by NVRTC in the first call, through torch's own function where it has one.

defence: reference error
problem: mlp batch_size=300 in_features=256 out_features=1024
gpu: yes
expect: ok
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

SOURCE = r"""
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

extern "C" __global__ void gelu_softmax(float* x, int columns) {
    float* row = x + (long long)blockIdx.x * columns;
    float largest = -__int_as_float(0x7f800000);
    for (int c = threadIdx.x; c < columns; c += 256) {
        row[c] = 0.5f * row[c] * (1.0f + erff(row[c] * 0.70710678f));
        if (!(row[c] <= largest)) largest = row[c];
    }
    largest = reduce(largest, true);
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 256) sum += row[c] = expf(row[c] - largest);
    sum = reduce(sum, false);
    for (int c = threadIdx.x; c < columns; c += 256) row[c] /= sum;
}
"""


def _compiled():
    """The kernel, or ``None`` where torch or NVRTC cannot make it."""
    try:
        return torch.cuda._compile_kernel(SOURCE, "gelu_softmax")
    except (AttributeError, OSError):
        return None


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.kernel = ()

    def forward(self, x):
        if self.kernel == ():
            self.kernel = _compiled()
        y = self.linear(x)
        if self.kernel is None:
            return torch.softmax(F.gelu(y), dim=1)
        self.kernel(grid=(y.shape[0], 1, 1), block=(256, 1, 1), args=[y, y.shape[1]])
        return y
