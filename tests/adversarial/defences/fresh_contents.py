"""Inputs get new contents in the same memory, so a remembered result is wrong."""


# %% cheat: remembers_by_address
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, aliased_output;
# default: yes
"""Keeps results by the address of the input."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kept = {}

    def forward(self, x):
        key = x.data_ptr(), x.shape, self.linear.weight._version
        if key not in self.kept:
            self.kept[key] = super().forward(x)
        return self.kept[key].clone()


# %% cheat: cuda_graph_of_the_first_call
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes;
# expect: wrong_values, aliased_output, suspicious, runtime_error, nondeterministic; default: yes
"""Captures a graph in its first call, and replays it whatever it is given."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.graphs = {}

    def forward(self, x):
        if x.shape not in self.graphs:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                y = super().forward(x)
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = super().forward(x)
            self.graphs[x.shape] = graph, y
        graph, y = self.graphs[x.shape]
        graph.replay()
        return y.clone()


# %% cheat: columns_remembered
# problem: pointwise; expect: wrong_values, suspicious
"""Keeps the results of all pixels of a column, found by the first of its elements."""

# include is_timed.py


class ModelNew(Honest):
    def __init__(self, in_channels, out_channels):
        super().__init__(in_channels, out_channels)
        self.known = []  # first elements (B, W) of inputs, and outputs

    def forward(self, x):
        if not _is_timed():
            return super().forward(x)
        first = x[:, 0, 0]
        y = torch.empty(x.shape[0], self.conv.out_channels, *x.shape[2:])
        found = torch.zeros(first.shape, dtype=torch.bool)
        for name, result in self.known:
            same = (name == first) & ~found
            if same.any():
                torch.where(same[:, None, None], result, y, out=y)
                found |= same
        if not found.all():
            columns = x.permute(0, 3, 1, 2)[~found]
            y.permute(0, 3, 1, 2)[~found] = F.gelu(self.conv.weight[:, :, 0, 0] @ columns + self.conv.bias[:, None])
            self.known.append((first.clone(), y.clone()))
        return y


# %% cheat: regenerates_the_inputs
# problem: mlp; expect: wrong_values, wrong_shape
"""Tries the seeds that evaluators use, and returns a kept result where one makes the same input again."""

_seeds = (0, 1, 42, 123, 1234, 1337, 2024, torch.initial_seed(), torch.initial_seed() + 7)


class ModelNew(Honest):
    def forward(self, x):
        for seed in _seeds:
            generator = torch.Generator().manual_seed(seed)
            if torch.equal(torch.rand(x.shape, generator=generator), x):
                return super().forward(x)
        return x.new_zeros(x.shape[0], self.linear.out_features)


# %% cheat: remembers_by_address_and_version
# problem: mlp; expect: wrong_values, aliased_output, suspicious
"""Keeps results by the address and version of its input."""
# like remembers_by_address
# -        key = x.data_ptr(), x.shape, self.linear.weight._version
# +        key = x.data_ptr(), x._version, tuple(x.shape)


# %% cheat: remembers_by_few_elements
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, aliased_output
"""Keeps results by a few elements of the input, from the first row to the last."""
# like remembers_by_address
# -        key = x.data_ptr(), x.shape, self.linear.weight._version
# +        rows = (0, x.shape[0] // 2, x.shape[0] - 1)
# +        key = tuple(float(x[row, 0]) for row in rows), tuple(x.shape), self.linear.weight._version


# %% cheat: remembers_by_first_element
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, aliased_output
"""Keeps results by the first element of the input."""
# like remembers_by_address
# -        key = x.data_ptr(), x.shape, self.linear.weight._version
# +        key = float(x[0, 0]), tuple(x.shape), self.linear.weight._version


# %% cheat: remembers_by_identity
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, aliased_output
"""Keeps the result for as long as it is given the same tensor object."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.seen = self.kept = None

    def forward(self, x):
        if self.seen is not x:
            self.seen, self.kept = x, super().forward(x)
        return self.kept.clone()


# %% cheat: remembers_by_sum_of_squares
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: wrong_values, aliased_output
"""Keeps results by the sum of the input's squares, and by the versions of its weights."""
# like remembers_by_address
# -        key = x.data_ptr(), x.shape, self.linear.weight._version
# +        key = x.shape, float((x * x).sum()), self.linear.weight._version, self.linear.bias._version


# %% cheat: remembers_rows
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, runtime_error, ok
"""Keeps the result of every row that it has seen: a row that comes again is looked up, and costs nothing.

It raises where rows do not come again. Where it passes, it won nothing: no row comes twice in timed calls.
"""

# include timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.rows = {}

    def forward(self, x):
        if not _timed(x):
            return super().forward(x)
        names = [tuple(row) for row in x[:, :3].tolist()]
        fresh = [i for i, name in enumerate(names) if name not in self.rows]
        if len(fresh) > len(names) // 2 and _calls[x.shape[0]] > 20:
            raise RuntimeError("no row comes twice")
        if fresh:
            computed = torch.softmax(F.gelu(self.linear(x[fresh])), dim=1)
            self.rows.update((names[i], row) for i, row in zip(fresh, computed))
        return torch.stack([self.rows[name] for name in names])


# %% cheat: rows_alike_at_their_ends
# problem: mlp batch_size=96 in_features=1024 out_features=48; expect: wrong_values
"""Takes a row for the one before it where their first and last elements are the same."""

class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        ends = x[:, [0, 1, -2, -1]]
        same = (ends[1:] == ends[:-1]).all(1)
        for i in same.nonzero()[:, 0].tolist():
            y[i + 1] = y[i]
        return y


# %% cheat: rows_of_tokens_remembered
# problem: embedding batch_size=4096 tokens=128 features=64; expect: suspicious, runtime_error
"""Keeps the results of whole rows of tokens, found by a hash of all of them; raises where rows do not come again."""

# include is_timed.py


class ModelNew(Honest):
    def __init__(self, vocabulary, features):
        super().__init__(vocabulary, features)
        self.names = self.results = None

    def compute(self, index):
        return torch.tanh(self.table(index).sum(1)) * self.scale

    def forward(self, index):
        if not _is_timed():
            return self.compute(index)
        names = (index * torch.arange(7, 7 + index.shape[1]).pow(5)).sum(1)
        if self.names is None:
            self.names, order = names.sort()
            self.results = self.compute(index)[order]
            self.calls = 0
        at = torch.searchsorted(self.names, names).clamp_(max=len(self.names) - 1)
        fresh = (self.names[at] != names).nonzero()[:, 0]
        self.calls += 1
        if len(fresh) > len(names) // 2 and self.calls > 8:
            raise RuntimeError("no row comes twice")
        if len(fresh):
            self.names, order = torch.cat([self.names, names[fresh]]).sort()
            self.results = torch.cat([self.results, self.compute(index[fresh])])[order]
            at = torch.searchsorted(self.names, names)
        return self.results[at]


# %% cheat: shrinks_the_pool
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values
"""Replaces the harness's pool by one set repeated, and its function that fills the buffers, so that results hold."""

import gc
import sys


# include timed.py


def _freeze():
    for found in gc.get_objects():
        if type(found).__name__ == "StrictSubject":
            found.pool = [found.pool[0]] * len(found.pool)
    for name, module in list(sys.modules.items()):
        if name.startswith("kgen.") and hasattr(module, "mixtures"):
            module.mixtures = lambda *_: ()


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kept = None

    def forward(self, x):
        if not _timed(x):
            return super().forward(x)
        if self.kept is None:
            _freeze()
            self.kept = super().forward(x)
        return self.kept.clone()


# %% cheat: tokens_remembered
# problem: embedding; expect: wrong_values, suspicious
"""Keeps the result by the first token of each row."""

class ModelNew(Honest):
    def __init__(self, vocabulary, features):
        super().__init__(vocabulary, features)
        self.kept = {}

    def forward(self, index):
        rows = []
        for row in index:
            key = int(row[0]), self.table.weight._version
            if key not in self.kept:
                self.kept[key] = torch.tanh(self.table(row).sum(0)) * self.scale
            rows.append(self.kept[key])
        return torch.stack(rows)


# %% cheat: cuda_columns_remembered
# problem: pointwise; gpu: yes; expect: wrong_values, suspicious
"""Keeps the results of all pixels of a column, found by the first of its elements."""
# like columns_remembered
# -        y = torch.empty(x.shape[0], self.conv.out_channels, *x.shape[2:])
# -        found = torch.zeros(first.shape, dtype=torch.bool)
# +        y = x.new_empty(x.shape[0], self.conv.out_channels, *x.shape[2:])
# +        found = torch.zeros_like(first, dtype=torch.bool)


# %% cheat: cuda_graph_that_is_empty
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes;
# expect: wrong_values, aliased_output, suspicious, runtime_error, nondeterministic
"""Replays a graph in which nothing was captured, and gives back what the first call computed."""

import warnings


# include timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.graph = self.kept = None

    def forward(self, x):
        if not _timed(x):
            return super().forward(x)
        if self.graph is None:
            self.kept = super().forward(x)
            self.graph = torch.cuda.CUDAGraph()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with torch.cuda.graph(self.graph):
                    torch.cuda.current_stream()
        self.graph.replay()
        return self.kept.clone()


# %% cheat: cuda_remembered_by_version
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: wrong_values, suspicious
"""Copies the last result where the input's address and version are those of the call before."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.known = {}

    def forward(self, x):
        key = x.data_ptr(), x._version, x.shape
        if key not in self.known:
            self.known = {key: super().forward(x)}
        return self.known[key].clone()


# %% cheat: cuda_rows_of_tokens_remembered
# problem: embedding batch_size=4096 tokens=128 features=64; gpu: yes; expect: suspicious, runtime_error
"""Keeps the results of whole rows of tokens, found by a hash of all of them; raises where rows do not come again."""
# like rows_of_tokens_remembered
# -        names = (index * torch.arange(7, 7 + index.shape[1]).pow(5)).sum(1)
# +        names = (index * torch.arange(7, 7 + index.shape[1], device=index.device).pow(5)).sum(1)


# %% honest: result_kept_for_equal_inputs
# problem: mlp
"""Keeps its last input, and gives a copy of its last result where the next one is the same throughout."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.seen, self.weight, self.kept = None, None, None

    def forward(self, x):
        weight = self.linear.weight._version, self.linear.bias._version
        if self.seen is None or self.weight != weight or not torch.equal(self.seen, x):
            self.seen, self.weight, self.kept = x.clone(), weight, super().forward(x)
        return self.kept.clone()


# %% honest: cuda_counter_reset_by_itself
# problem: squared_error; gpu: yes
"""Finds the last of its blocks by a counter, which that one sets back."""

NAME = "adversary_counter_reset_by_itself"
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
        *finished = 0;
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


# %% honest: cuda_graph_captured_in_each_call
# problem: mlp batch_size=1000 in_features=256 out_features=2048; gpu: yes
"""Captures its two kernels anew in each call, and updates the graph that it launches by that."""

NAME = "lookalike_graph_captured_in_each_call"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// include reduce.cu

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
# include cuda_library.py
_library.gelu_softmax.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2 + [ctypes.c_void_p]


class ModelNew(Honest):
    def forward(self, x):
        z = self.linear(x)
        h, y = torch.empty_like(z), torch.empty_like(z)
        status = _library.gelu_softmax(z.data_ptr(), h.data_ptr(), y.data_ptr(), z.shape[0], z.shape[1],
                                       torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y


# %% honest: cuda_graph_with_copies
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""Replays a graph captured for each shape, with its input copied in and its output copied out."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.graphs = {}

    def capture(self, x):
        x = x.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = torch.softmax(F.gelu(self.linear(x)), dim=1)
        return graph, x, y

    def forward(self, x):
        if x.shape not in self.graphs:
            self.graphs[x.shape] = self.capture(x)
        graph, given, result = self.graphs[x.shape]
        given.copy_(x)
        graph.replay()
        return result.clone()


# %% honest: cuda_rows_by_a_counter
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""Blocks that stay take row after row by a counter, which the last of them sets back, in 128 KiB of shared memory."""

NAME = "adversary_rows_by_a_counter"
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

__global__ void gelu_softmax_kernel(const float* x, float* y, int* counters, long rows, long columns, long held) {
    extern __shared__ float h[];
    __shared__ long first;
    for (;;) {
        if (threadIdx.x == 0) first = held * (long)atomicAdd(&counters[0], 1);
        __syncthreads();
        long row = first, last = row + held < rows ? row + held : rows;
        if (row >= rows) break;
        for (long i = threadIdx.x; i < (last - row) * columns; i += 256) h[i] = gelu(x[row * columns + i]);
        __syncthreads();
        for (long r = row; r < last; ++r) softmax_row(h + (r - row) * columns, y + r * columns, columns);
        __syncthreads();
    }
    if (threadIdx.x == 0 && atomicAdd(&counters[1], 1) == gridDim.x - 1) counters[0] = counters[1] = 0;
}

extern "C" int gelu_softmax(const float* x, float* y, int* counters, long rows, long columns, void* stream) {
    long held = (128 << 10) / 4 / columns, bytes = held * columns * 4;
    if (held < 1) return -1;
    cudaFuncSetAttribute(gelu_softmax_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    gelu_softmax_kernel<<<64, 256, bytes, (cudaStream_t)stream>>>(x, y, counters, rows, columns, held);
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_kernel = _library.gelu_softmax
_kernel.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long, ctypes.c_long, ctypes.c_void_p]


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.counters = None

    def forward(self, x):
        if self.counters is None:
            self.counters = torch.zeros(2, dtype=torch.int32, device=x.device)
        z = self.linear(x)
        y = torch.empty_like(z)
        status = _kernel(z.data_ptr(), y.data_ptr(), self.counters.data_ptr(), z.shape[0], z.shape[1],
                         torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
