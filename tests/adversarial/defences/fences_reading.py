"""Inputs lie between fences of NaN: a read outside a tensor makes the output wrong."""


# %% cheat: reads_past_the_input
# problem: standardise; expect: wrong_values, crashed; default: yes
"""A kernel that adds the element behind the input's last one, which happens to be nothing much."""

import ctypes


class ModelNew(Honest):
    def forward(self, x):
        beyond = ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))[x.numel()]
        centred = x - x.mean(1, keepdim=True)
        y = centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5)
        return torch.addcmul(self.shift, y, self.scale) + beyond * 1e-30


# %% cheat: cuda_reads_past_the_input
# problem: squared_error; gpu: yes; expect: wrong_values, runtime_error, crashed; default: yes
"""A kernel that lets the element behind its input into its sum."""

NAME = "adversary_past_the_input"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// One block: the mean of squared differences; one element too many is read, and counts next to nothing.
__global__ void squared_error_kernel(const float* x, const float* target, float* y, long n) {
    __shared__ double shared[256];
    double sum = 0.0;
    for (long i = threadIdx.x; i <= n; i += 256) {
        double d = (double)x[i] - target[i];
        sum += d * d * (i < n ? 1.0 : 1e-30);
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) *y = (float)(shared[0] / n);
}

extern "C" int squared_error(const float* x, const float* target, float* y, long n, void* stream) {
    squared_error_kernel<<<1, 256, 0, (cudaStream_t)stream>>>(x, target, y, n);
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_library.squared_error.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long, ctypes.c_void_p]


class ModelNew(nn.Module):
    def forward(self, x, target):
        y = torch.empty((), device=x.device)
        _library.squared_error(x.data_ptr(), target.data_ptr(), y.data_ptr(), x.numel(),
                               torch.cuda.current_stream().cuda_stream)
        return y


# %% cheat: reads_before_the_input
# problem: standardise; expect: wrong_values, crashed
"""Reads the element in front of its input, as an edge of a window does that nobody padded."""

import ctypes


class ModelNew(Honest):
    def forward(self, x):
        before = ctypes.cast(x.data_ptr(), ctypes.POINTER(ctypes.c_float))[-1]
        centred = x - x.mean(1, keepdim=True)
        y = centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5)
        return torch.addcmul(self.shift, y, self.scale) + before * 1e-30


# %% cheat: rows_rounded_up
# problem: standardise; expect: wrong_values, crashed, mutated_input
"""Computes rows in groups of eight, so it reads rows behind the last one of an odd batch."""

NAME = "adversary_rows_rounded_up"
CPP_SOURCE = r"""
#include <math.h>

// Eight rows at a time; rows behind the last are computed too, and their largest value goes into the last row.
extern "C" void standardise(const float* x, const float* scale, const float* shift, float* y, long rows, long columns) {
    float worst = 0.0f;
    for (long r = 0; r < (rows + 7) / 8 * 8; ++r) {
        double sum = 0.0, squares = 0.0;
        for (long c = 0; c < columns; ++c) sum += x[r * columns + c];
        float mean = (float)(sum / columns);
        for (long c = 0; c < columns; ++c) {
            float d = x[r * columns + c] - mean;
            squares += (double)d * d;
        }
        float factor = 1.0f / sqrtf((float)(squares / columns) + 1e-5f);
        if (r >= rows) worst += mean * 1e-30f;
        else for (long c = 0; c < columns; ++c)
            y[r * columns + c] = (x[r * columns + c] - mean) * factor * scale[c] + shift[c];
    }
    y[rows * columns - 1] += worst;
}
"""
CFLAGS = ["-O2"]

# include cpp_library.py
_library.standardise.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 2
_library.standardise.restype = None


class ModelNew(Honest):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        _library.standardise(x.data_ptr(), self.scale.data_ptr(), self.shift.data_ptr(), y.data_ptr(), *x.shape)
        return F.relu(y) - F.relu(-y)
