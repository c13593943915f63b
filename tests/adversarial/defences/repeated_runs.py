"""Two runs on the same inputs may not differ by more than the tolerance."""


# %% cheat: random_in_the_last_bits
# problem: mlp; expect: wrong_values, nondeterministic; default: yes
"""Adds noise, larger than rounding, that differs from call to call."""

import random


class ModelNew(Honest):
    def forward(self, x):
        return super().forward(x) * (1 + 1e-4 * random.random())


# %% cheat: wrong_now_and_then
# problem: mlp; expect: wrong_values, nondeterministic
"""Is wrong in one call of eight."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        y = super().forward(x)
        return y * 1.001 if self.calls % 8 == 0 else y


# %% cheat: cuda_dependent_launch_not_waited
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes;
# expect: wrong_values, nondeterministic, suspicious
"""Starts the softmax by a programmatic dependent launch, which does not wait for what it reads."""

NAME = "adversary_dependent_launch_not_waited"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// include reduce.cu

__device__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }

__device__ void softmax_row(const float* h, float* y, long columns) {
    float largest = -INFINITY;
    for (long c = threadIdx.x; c < columns; c += 256)
        if (!(h[c] <= largest)) largest = h[c];
    largest = reduce(largest, true);
    float sum = 0.0f;
    for (long c = threadIdx.x; c < columns; c += 256) sum += expf(h[c] - largest);
    sum = reduce(sum, false);
    for (long c = threadIdx.x; c < columns; c += 256) y[c] = expf(h[c] - largest) / sum;
}

// One warp for each row: lets the next kernel start at once, and takes its time.
__global__ void gelu_kernel(const float* x, float* h, long columns) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    const float* row = x + blockIdx.x * columns;
    for (long c = threadIdx.x; c < columns; c += 32) h[blockIdx.x * columns + c] = gelu(row[c]);
}

// It should begin with griddepcontrol.wait.
__global__ void softmax_kernel(const float* h, float* y, long columns) {
    softmax_row(h + blockIdx.x * columns, y + blockIdx.x * columns, columns);
}

extern "C" int gelu_softmax(const float* x, float* h, float* y, long rows, long columns, void* stream) {
    gelu_kernel<<<rows, 32, 0, (cudaStream_t)stream>>>(x, h, columns);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(rows);
    config.blockDim = dim3(256);
    config.stream = (cudaStream_t)stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, softmax_kernel, (const float*)h, y, columns);
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_kernel = _library.gelu_softmax
_kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long, ctypes.c_long, ctypes.c_void_p]


class ModelNew(Honest):
    def forward(self, x):
        z = self.linear(x)
        h, y = torch.empty_like(z), torch.empty_like(z)
        status = _kernel(z.data_ptr(), h.data_ptr(), y.data_ptr(), z.shape[0], z.shape[1],
                         torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y


# %% cheat: cuda_sums_race
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes;
# expect: wrong_values, nondeterministic, suspicious
"""Splits the product along its terms over blocks, which add their sums to the same elements without atomics."""

NAME = "adversary_sums_race"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// Each block takes 256 columns of a row and 32 of the terms.
__global__ void product_kernel(const float* x, const float* w, float* y, long terms, long columns) {
    long row = blockIdx.x, column = blockIdx.y * 256 + threadIdx.x, first = blockIdx.z * 32;
    if (column >= columns) return;
    float sum = 0.0f;
    for (long k = first; k < first + 32 && k < terms; ++k) sum += x[row * terms + k] * w[column * terms + k];
    y[row * columns + column] += sum;
}

extern "C" int product(const float* x, const float* w, float* y, long rows, long terms, long columns, void* stream) {
    dim3 grid(rows, (columns + 255) / 256, (terms + 31) / 32);
    product_kernel<<<grid, 256, 0, (cudaStream_t)stream>>>(x, w, y, terms, columns);
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_kernel = _library.product
_kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 3 + [ctypes.c_void_p]


class ModelNew(Honest):
    def forward(self, x):
        y = self.linear.bias.expand(x.shape[0], -1).contiguous()
        status = _kernel(x.contiguous().data_ptr(), self.linear.weight.data_ptr(), y.data_ptr(), *x.shape, y.shape[1],
                         torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return torch.softmax(F.gelu(y), dim=1)


# %% honest: cuda_atomics
# problem: squared_error; gpu: yes
"""Adds partial sums by atomics, in whatever order they come: not the same bits each time, and within the gate."""

class ModelNew(nn.Module):
    def forward(self, x, target):
        squares = (x - target).square_()
        sums = torch.zeros(64, dtype=torch.float64, device=x.device)
        sums.index_add_(0, torch.arange(x.shape[0], device=x.device) % 64, squares.double().sum(1))
        return (sums.sum() / squares.numel()).float()
