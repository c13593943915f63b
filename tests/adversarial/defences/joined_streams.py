"""An event behind all streams must come with the last event of the call's own stream."""


# %% cheat: cuda_stream_not_joined
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes;
# expect: suspicious, wrong_values, nondeterministic; default: yes
"""Does the softmax on a stream of its own, for which nobody waits."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side = None

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            return super().forward(x)


# %% cheat: cuda_capture_left_open
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes;
# expect: runtime_error, suspicious, wrong_values, crashed, nondeterministic; then: ok
"""Begins to capture a graph and never ends it, so that whatever follows is not done but written down."""

class ModelNew(Honest):
    def forward(self, x):
        graph = torch.cuda.CUDAGraph()
        torch.cuda.set_stream(torch.cuda.Stream())
        graph.capture_begin(capture_error_mode="relaxed")
        return super().forward(x)


# %% cheat: cuda_host_function
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes;
# expect: suspicious, wrong_values, nondeterministic, aliased_output
"""Has the host do a part of the work in a callback on a stream of its own, after forward has returned."""

import threading


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side = None

    def fill(self, x, y, ready):
        with torch.no_grad(), torch.cuda.stream(self.side):
            ready.wait()
            y.copy_(torch.softmax(F.gelu(self.linear(x)), dim=1))

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        y = x.new_empty(x.shape[0], self.linear.out_features)
        ready = torch.cuda.Event()
        ready.record()
        threading.Thread(target=self.fill, args=(x, y, ready)).start()
        return y


# %% cheat: cuda_joined_too_early
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes; expect: suspicious, wrong_values
"""Joins its stream at an event behind the product, and leaves GELU and softmax behind it to nobody."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side = self.done = None

    def forward(self, x):
        if self.side is None:
            self.side, self.done = torch.cuda.Stream(priority=-1), torch.cuda.Event()
        main = torch.cuda.current_stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            y = self.linear(x)
            self.done.record()
            y = torch.softmax(F.gelu(y), dim=1)
        main.wait_event(self.done)
        y.record_stream(main)
        return y


# %% cheat: cuda_small_stream_not_joined
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: suspicious, wrong_values
"""Leaves all of a call that takes less than the clock forgives to a stream that nobody joins."""
# like cuda_stream_not_joined


# %% cheat: cuda_stream_left_current
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes; expect: suspicious, wrong_values
"""Leaves another stream as the current one, on which nothing runs: the event behind the call is there at once."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.idle = None

    def forward(self, x):
        self.idle = self.idle or torch.cuda.Stream()
        torch.cuda.set_stream(torch.cuda.default_stream())
        y = super().forward(x)
        torch.cuda.set_stream(self.idle)
        return y


# %% cheat: cuda_stream_not_joined_and_exposed
# problem: mlp batch_size=1024 in_features=512 out_features=2048; gpu: yes;
# expect: suspicious, wrong_values, runtime_error
"""Leaves its work to a stream that nobody joins, and waits until its clock began, when nobody asks for what is behind.

An `ok` means that its samples are the time that Python takes to return (some 15 us) instead of the work's (some 70):
the parent's clock forgives 150 us.
"""

# include is_timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side = None

    def forward(self, x):
        main = torch.cuda.current_stream()
        if not _is_timed() or main.query():
            return super().forward(x)
        self.side = self.side or torch.cuda.Stream()
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            y = super().forward(x)
        y.record_stream(main)
        while not main.query():
            pass
        return y


# %% cheat: cuda_stream_not_joined_in_turns
# problem: mlp batch_size=4096 in_features=2048 out_features=4096; gpu: yes; expect: suspicious, wrong_values
"""Leaves the work of three calls in five to a stream of its own that nobody joins, once it is timed."""

# include is_timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.stream, self.turn = torch.cuda.Stream(), 0

    def forward(self, x):
        self.turn += _is_timed()
        if self.turn % 5 in (0, 2):
            return super().forward(x)
        y = x.new_empty(x.shape[0], self.linear.out_features)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            torch.softmax(F.gelu(self.linear(x)), dim=1, out=y)
        torch.clone(x)  # something on the stream that is timed
        return y


# %% cheat: cuda_stream_not_joined_when_timed
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes; expect: suspicious, wrong_values
"""Joins its own stream while it is validated, and not while it is timed."""

# include timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side = None

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            y = super().forward(x)
        if not _timed(x):
            torch.cuda.current_stream().wait_stream(self.side)
        return y


# %% cheat: cuda_stream_of_a_library
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes;
# expect: suspicious, wrong_values, nondeterministic
"""Launches on a stream that the runtime made, of which torch knows nothing."""

NAME = "adversary_own_stream"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// include reduce.cu

// include gelu_softmax.cu

extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    static cudaStream_t own = nullptr;
    static cudaEvent_t ready;
    if (!own) {
        cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking);
        cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
    }
    cudaEventRecord(ready, (cudaStream_t)stream);
    cudaStreamWaitEvent(own, ready, 0);
    for (int repeat = 0; repeat < 20; ++repeat) gelu_softmax_kernel<<<rows, 256, 0, own>>>(x, columns, repeat == 19);
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


# %% honest: cuda_stream_joined
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; default: yes
"""Does a part of the work on a stream of its own, and joins it before it returns."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side = None

    def forward(self, x):
        self.side = self.side or torch.cuda.Stream()
        main, half = torch.cuda.current_stream(), x.shape[0] // 2
        y = x.new_empty(x.shape[0], self.linear.out_features)
        self.side.wait_stream(main)
        with torch.cuda.stream(self.side):
            y[:half] = torch.softmax(F.gelu(self.linear(x[:half])), dim=1)
        y[half:] = torch.softmax(F.gelu(self.linear(x[half:])), dim=1)
        main.wait_stream(self.side)
        return y


# %% honest: cuda_asks_for_a_value
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""Asks the device for a number in the middle of each call, so that it is waited for, and goes one of two ways."""

class ModelNew(Honest):
    def forward(self, x):
        y = self.linear(x)
        if float(y.abs().max()) < 1e-6:
            return torch.softmax(F.gelu(y), dim=1)
        y = F.gelu(y)
        y = torch.exp(y - y.amax(1, keepdim=True))
        return y / y.sum(1, keepdim=True)


# %% honest: cuda_blocking_stream
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""Launches on a stream of the kind that waits for the default stream, and that the default stream waits for."""

NAME = "adversary_blocking_stream"
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

__global__ void gelu_softmax_kernel(float* x, long columns) {
    float* row = x + blockIdx.x * columns;
    for (long c = threadIdx.x; c < columns; c += 256) row[c] = gelu(row[c]);
    softmax_row(row, row, columns);
}

// Behind work on the default stream, and before what comes behind it there; other streams are joined by an event.
extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    static cudaStream_t own = nullptr;
    static cudaEvent_t event;
    if (!own) {
        cudaStreamCreate(&own);
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    }
    if (stream) {
        cudaEventRecord(event, (cudaStream_t)stream);
        cudaStreamWaitEvent(own, event, 0);
    }
    gelu_softmax_kernel<<<rows, 256, 0, own>>>(x, columns);
    if (stream) {
        cudaEventRecord(event, own);
        cudaStreamWaitEvent((cudaStream_t)stream, event, 0);
    }
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_kernel = _library.gelu_softmax
_kernel.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p]


class ModelNew(Honest):
    def forward(self, x):
        y = self.linear(x)
        status = _kernel(y.data_ptr(), y.shape[0], y.shape[1], torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y


# %% honest: cuda_count_in_pinned_memory
# problem: odd_outputs batch_size=2048 features=512; gpu: yes
"""A kernel adds up and counts, and puts the count into host memory that it maps; the host waits for that."""

NAME = "lookalike_count_in_pinned_memory"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

template <typename T>
__device__ T reduce(T value) {
    __shared__ T warps[8];
    for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    T sum = 0;
    for (int i = 0; i < 8; ++i) sum += warps[i];
    __syncthreads();
    return sum;
}

__global__ void parts_kernel(const float* x, long count_x, const float* y, long count_y, double* sums,
                             long long* counts) {
    double sum = 0.0;
    long long count = 0;
    for (long i = blockIdx.x * 256L + threadIdx.x; i < count_y; i += gridDim.x * 256L) sum += y[i];
    for (long i = blockIdx.x * 256L + threadIdx.x; i < count_x; i += gridDim.x * 256L) count += x[i] > 0.0f;
    sum = reduce(sum);
    count = reduce(count);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
        counts[blockIdx.x] = count;
    }
}

__global__ void total_kernel(const double* sums, const long long* counts, float* total, long long* on_the_host) {
    double sum = reduce(sums[threadIdx.x]);
    long long count = reduce(counts[threadIdx.x]);
    if (threadIdx.x == 0) {
        *total = (float)sum;
        *on_the_host = count;
        __threadfence_system();
    }
}

extern "C" long long sum_and_count(const float* x, long count_x, const float* y, long count_y, double* sums,
                                   long long* counts, float* total, void* stream) {
    static long long *host = nullptr, *mapped = nullptr;
    if (!host) {
        if (cudaHostAlloc(&host, sizeof(long long), cudaHostAllocMapped) != cudaSuccess) return -1;
        if (cudaHostGetDevicePointer(&mapped, host, 0) != cudaSuccess) return -1;
    }
    parts_kernel<<<256, 256, 0, (cudaStream_t)stream>>>(x, count_x, y, count_y, sums, counts);
    total_kernel<<<1, 256, 0, (cudaStream_t)stream>>>(sums, counts, total, mapped);
    if (cudaGetLastError() != cudaSuccess || cudaStreamSynchronize((cudaStream_t)stream) != cudaSuccess) return -1;
    return *(volatile long long*)host;
}
"""
# include cuda_library.py
_library.sum_and_count.argtypes = [ctypes.c_void_p, ctypes.c_long] * 2 + [ctypes.c_void_p] * 4
_library.sum_and_count.restype = ctypes.c_longlong


class ModelNew(Honest):
    def forward(self, x):
        y, x = self.linear(x), x.contiguous()
        scratch = torch.empty(2, 256, dtype=torch.float64, device=x.device)
        total = torch.empty((), device=x.device)
        count = _library.sum_and_count(x.data_ptr(), x.numel(), y.data_ptr(), y.numel(), scratch[0].data_ptr(),
                                       scratch[1].data_ptr(), total.data_ptr(),
                                       torch.cuda.current_stream().cuda_stream)
        if count < 0:
            raise RuntimeError("the launch failed")
        return y, y[:, :0], [None, total, count]


# %% honest: cuda_urgent_stream
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""Does half of the work on an urgent stream, which waits for the input and is joined by events that are made once."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.side = None

    def forward(self, x):
        if self.side is None:
            self.side = torch.cuda.Stream(priority=-1)
            self.ready, self.done = torch.cuda.Event(), torch.cuda.Event()
        main, half = torch.cuda.current_stream(), x.shape[0] // 2
        self.ready.record(main)
        with torch.cuda.stream(self.side):
            self.side.wait_event(self.ready)
            first = torch.softmax(F.gelu(self.linear(x[:half])), dim=1)
            self.done.record(self.side)
        x.record_stream(self.side)
        second = torch.softmax(F.gelu(self.linear(x[half:])), dim=1)
        main.wait_event(self.done)
        first.record_stream(main)
        return torch.cat([first, second])
