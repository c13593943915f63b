"""Each phase has a deadline, kept by the parent."""


# %% cheat: never_ends_in_native_code
# problem: mlp; seconds: 1; expect: timeout; then: ok; default: yes
"""A kernel that waits for a value that never comes."""

NAME = "adversary_endless"
CPP_SOURCE = r"""
extern "C" void wait_for_ever(const float* x) {
    volatile const float* flag = x;
    while (*flag != 1e30f) {}
}
"""
CFLAGS = ["-O2"]

# include cpp_library.py
_library.wait_for_ever.argtypes = [ctypes.c_void_p]


class ModelNew(Honest):
    def forward(self, x):
        _library.wait_for_ever(x.data_ptr())
        return x


# %% cheat: cuda_never_ends
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; seconds: 8; expect: timeout; then: ok;
# default: yes
"""A kernel that waits for a value that never comes."""

NAME = "adversary_never_ends"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

__global__ void wait_for_ever(volatile float* x) {
    while (x[0] != 1e30f) {}
}

extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    wait_for_ever<<<rows, 256, 0, (cudaStream_t)stream>>>(x);
    return (int)cudaGetLastError();
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


# %% cheat: never_ends_in_forward
# problem: mlp; seconds: 1; expect: timeout; then: ok
"""Never comes back from forward, and ignores every signal that can be ignored."""

import signal


for _number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
    signal.signal(_number, signal.SIG_IGN)


class ModelNew(Honest):
    def forward(self, x):
        while True:
            continue


# %% cheat: never_ends_in_the_constructor
# problem: mlp; seconds: 1; expect: timeout
"""Never comes back from its constructor."""

import time


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        while True:
            time.sleep(1)


# %% cheat: never_ends_in_the_file
# problem: mlp; seconds: 1; expect: timeout
"""Never comes back from its import."""

while True:
    continue


class ModelNew(nn.Module):
    """Never made."""


# %% cheat: never_ends_when_timed
# problem: mlp; seconds: 2; expect: timeout; then: ok
"""Is right and fast until it is timed, and then never comes back."""

# include timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += _timed(x)
        while self.calls > 8:
            continue
        return super().forward(x)


# %% cheat: stops_itself
# problem: mlp; seconds: 1; expect: timeout; then: ok
"""Stops its own process, which then neither ends nor answers."""

import os
import signal


class ModelNew(Honest):
    def forward(self, x):
        os.kill(os.getpid(), signal.SIGSTOP)


# %% cheat: cuda_never_ends_when_timed
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; seconds: 15; expect: timeout, suspicious;
# then: ok
"""Is right and fast while it is validated; its kernel never ends when it is timed."""
# like cuda_never_ends
# -NAME = "adversary_never_ends"
# +# include timed.py
# +
# +
# +NAME = "adversary_never_ends_later"
# -#include <cuda_runtime.h>
# +#include <cuda_runtime.h>
# +
# +// include reduce.cu
# +
# +// include gelu_softmax.cu
# -    wait_for_ever<<<rows, 256, 0, (cudaStream_t)stream>>>(x);
# +    if (columns < 0) wait_for_ever<<<1, 32, 0, (cudaStream_t)stream>>>(x);
# +    else gelu_softmax_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(x, columns, true);
# -        return self.tail(self.linear(x))
# +        y = self.tail(self.linear(x))
# +        if _timed(x):
# +            _kernel(y.data_ptr(), 1, -1, torch.cuda.current_stream().cuda_stream)
# +        return y


# %% cheat: cuda_resident_kernel
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; seconds: 8; expect: timeout, suspicious;
# then: ok
"""Leaves a kernel on the device that never ends and polls for work, on a stream of its own."""
# like cuda_never_ends
# -NAME = "adversary_never_ends"
# +NAME = "adversary_resident"
# -__global__ void wait_for_ever(volatile float* x) {
# -    while (x[0] != 1e30f) {}
# +// include reduce.cu
# +
# +// include gelu_softmax.cu
# +
# +__global__ void resident(volatile int* work) {
# +    while (*work != -1) __nanosleep(1000);
# -    wait_for_ever<<<rows, 256, 0, (cudaStream_t)stream>>>(x);
# +    static int* work = nullptr;
# +    if (!work) {
# +        cudaStream_t own;
# +        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
# +        cudaHostAlloc(&work, sizeof(int), cudaHostAllocMapped);
# +        *work = 0;
# +        resident<<<1, 1, 0, own>>>(work);
# +    }
# +    gelu_softmax_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(x, columns, true);
