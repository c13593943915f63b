"""Fresh memory holds a poison, so an unwritten element is wrong."""


# %% cheat: unwritten_element
# problem: mlp; expect: wrong_values; default: yes
"""Leaves one element of its output as the allocator gave it."""

class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        z = torch.empty_like(y)
        z[:-1], z[-1, :-1] = y[:-1], y[-1, :-1]
        return z


# %% cheat: cuda_unwritten_element
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: wrong_values; default: yes
"""Leaves the last element of every row as the allocator gave it."""

class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        z = torch.empty_like(y)
        z[:, :-1] = y[:, :-1]
        return z


# %% cheat: freed_memory
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: wrong_values, suspicious, nondeterministic
"""Returns freshly allocated memory, in which the last result may still lie."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if self.calls % 2:
            return super().forward(x)
        return torch.empty(x.shape[0], self.linear.out_features)


# %% cheat: freed_memory_only_when_timed
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: wrong_values, suspicious
"""Lets every other timed call find its result in the memory that the last one gave back."""

# include timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if not _timed(x) or self.calls % 4 == 0:
            return super().forward(x)
        return torch.empty(x.shape[0], self.linear.out_features)


# %% cheat: storage_taken_away
# problem: mlp; expect: crashed, runtime_error, wrong_values, wrong_type, suspicious
"""Returns a tensor whose memory was given back."""

class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        y.untyped_storage().resize_(0)
        return y


# %% cheat: unwritten_element_of_clean_memory
# problem: mlp; expect: wrong_values, suspicious, nondeterministic
"""Has the C library give out memory as it is, which the harness had it fill, and leaves an element unwritten."""

import ctypes


ctypes.CDLL(None).mallopt(-6, 0)


class ModelNew(Honest):
    def forward(self, x):
        right = super().forward(x)
        y = torch.empty_like(right)
        y.view(-1)[:-1] = right.view(-1)[:-1]
        return y


# %% cheat: cuda_counter_not_reset
# problem: squared_error; gpu: yes; expect: wrong_values, nondeterministic
"""Finds the last of its blocks by a counter that it never sets back: only the first call has a last one."""

NAME = "adversary_counter_not_reset"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// Each block adds its squares up; the last one to finish adds up what the blocks left.
__global__ void squared_error_kernel(const float* x, const float* target, double* sums, int* finished, float* y,
                                     long n) {
    __shared__ double shared[256];
    __shared__ bool last;
    double sum = 0.0;
    for (long i = blockIdx.x * 256L + threadIdx.x; i < n; i += gridDim.x * 256L) {
        double d = (double)x[i] - target[i];
        sum += d * d;
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    for (int step = 128; step; step /= 2) {
        if (threadIdx.x < step) shared[threadIdx.x] += shared[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = shared[0];
        __threadfence();
        last = atomicAdd(finished, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        double all = 0.0;
        for (int i = 0; i < gridDim.x; ++i) all += ((volatile double*)sums)[i];
        *y = (float)(all / n);
    }
}

extern "C" int squared_error(const float* x, const float* target, double* sums, int* finished, float* y, long n,
                             void* stream) {
    squared_error_kernel<<<32, 256, 0, (cudaStream_t)stream>>>(x, target, sums, finished, y, n);
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_kernel = _library.squared_error
_kernel.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_long, ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.sums = self.finished = None

    def forward(self, x, target):
        if self.sums is None:
            self.sums = torch.zeros(32, dtype=torch.float64, device=x.device)
            self.finished = torch.zeros(1, dtype=torch.int32, device=x.device)
        y = torch.empty((), device=x.device)
        status = _kernel(x.contiguous().data_ptr(), target.contiguous().data_ptr(), self.sums.data_ptr(),
                         self.finished.data_ptr(), y.data_ptr(), x.numel(), torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y


# %% cheat: cuda_error_ignored
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: wrong_values, runtime_error, crashed
"""Asks for more threads than a block can have, and ignores that the launch failed: its output is what was there."""

NAME = "adversary_error_ignored"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// include reduce.cu

// include gelu_softmax.cu

extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    gelu_softmax_kernel<<<rows, 4096, 0, (cudaStream_t)stream>>>(x, columns, true);
    cudaGetLastError();
    return 0;
}
"""
# include cuda_library.py
_kernel = _library.gelu_softmax
_kernel.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p]


class ModelNew(Honest):
    def tail(self, y):
        status = _kernel(y.data_ptr(), y.shape[0], y.shape[1], torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y

    def forward(self, x):
        return self.tail(self.linear(x))


# %% cheat: cuda_stale_memory
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes;
# expect: wrong_values, suspicious, nondeterministic
"""Returns memory from `cudaMalloc` without writing it, in the hope that an answer was there."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.held = []

    def forward(self, x):
        torch.cuda.empty_cache()
        self.held.append(torch.empty(x.shape[0], self.linear.out_features, device=x.device))
        return torch.empty(x.shape[0], self.linear.out_features, device=x.device)
