"""An output may not share memory with an earlier output that is still held."""


# %% cheat: outputs_in_turns
# problem: mlp; expect: aliased_output; default: yes
"""Keeps two outputs and uses them in turns, so that no two calls in a row share memory."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kept, self.calls = [torch.empty(0), torch.empty(0)], 0

    def forward(self, x):
        y = super().forward(x)
        self.calls += 1
        return self.kept[self.calls % 2].resize_(y.shape).copy_(y)


# %% cheat: cuda_memory_of_its_own
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: aliased_output, suspicious;
# default: yes
"""Keeps its output in memory from `cudaMalloc`, of which torch's allocator knows nothing."""

import ctypes


_runtime = ctypes.CDLL(None)


class Memory:
    """Device memory that torch takes for a tensor."""

    def __init__(self, shape):
        address = ctypes.c_void_p()
        if _runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(4 * shape[0] * shape[1])):
            raise RuntimeError("cudaMalloc failed")
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (address.value, False), "version": 2}


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.memory = {}

    def forward(self, x):
        shape = x.shape[0], self.linear.out_features
        if shape not in self.memory:
            self.memory[shape] = Memory(shape)
        y = torch.as_tensor(self.memory[shape], device=x.device)
        return y.copy_(super().forward(x))


# %% cheat: every_third_output_kept
# problem: mlp; expect: aliased_output, suspicious
"""Returns memory that it keeps in every third call."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls, self.kept = 0, {}

    def forward(self, x):
        self.calls += 1
        y = super().forward(x)
        if self.calls % 3:
            return y
        return self.kept.setdefault(len(x), torch.empty_like(y)).copy_(y)


# %% cheat: last_rows_of_other_sizes_kept
# problem: mlp; expect: aliased_output, suspicious
"""Returns memory that it keeps for batches of 63 rows only."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kept = None

    def forward(self, x):
        y = super().forward(x)
        if len(x) != 63:
            return y
        self.kept = torch.empty_like(y) if self.kept is None else self.kept
        return self.kept.copy_(y)


# %% cheat: output_is_a_view_of_a_kept_buffer
# problem: mlp; expect: aliased_output
"""Returns the first rows of a large buffer that it keeps."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kept = torch.empty(1024, out_features)

    def forward(self, x):
        view = self.kept[: x.shape[0]]
        view.copy_(super().forward(x))
        return view


# %% cheat: output_kept
# problem: mlp; expect: aliased_output
"""Writes every result into the same memory."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kept = torch.empty(0)

    def forward(self, x):
        y = super().forward(x)
        return self.kept.resize_(y.shape).copy_(y)


# %% cheat: output_kept_in_the_second_mapping
# problem: mlp; expect: aliased_output, suspicious, wrong_values
"""Keeps one output in memory that is mapped twice: two addresses, one page."""

import mmap
import os


_fd = os.memfd_create("pages")
os.ftruncate(_fd, 1 << 20)
_maps = [mmap.mmap(_fd, 1 << 20) for _ in range(2)]


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        shape = x.shape[0], self.linear.out_features
        y = torch.frombuffer(_maps[self.calls % 2], dtype=torch.float32, count=shape[0] * shape[1]).view(shape)
        return y.copy_(super().forward(x))


# %% cheat: output_kept_where_eval_hands_on
# problem: gate_in_training; mode: both; expect: aliased_output
"""Writes each output over the one before in train mode; in eval mode the problem hands on its input, and so does this."""

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        if not self.training:
            return x
        if len(x) not in self.kept:
            self.kept[len(x)] = torch.empty_like(x)
        return torch.sigmoid(x, out=self.kept[len(x)]).mul_(x)


# %% cheat: outputs_in_a_ring
# problem: mlp; expect: aliased_output
"""Keeps a ring of sixteen outputs."""

from collections import deque


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.ring = deque(torch.empty(0) for _ in range(16))

    def forward(self, x):
        self.ring.rotate()
        y = super().forward(x)
        return self.ring[0].resize_(y.shape).copy_(y)


# %% cheat: slices_of_a_slab
# problem: mlp; expect: aliased_output
"""Returns slices of memory that it makes for eight calls at a time."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.slab = []

    def forward(self, x):
        n = len(x)
        if not self.slab or self.slab[-1].shape[0] != n:
            self.slab = list(torch.empty(8, n, self.linear.out_features))
        return torch.softmax(F.gelu(self.linear(x)), dim=1, out=self.slab.pop())


# %% cheat: cuda_compiled_with_graphs
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes;
# expect: aliased_output, runtime_error, suspicious, wrong_values, nondeterministic, timeout
"""Leaves everything to torch.compile's graphs, whose output is memory that the next call writes over."""

@torch.compile(mode="reduce-overhead", dynamic=False)
def _tail(y):
    return torch.softmax(F.gelu(y), dim=1)


class ModelNew(Honest):
    def forward(self, x):
        return _tail(self.linear(x))


# %% cheat: cuda_memory_given_back_in_order
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: aliased_output, suspicious
"""Returns memory of the driver's own pool, which it gives back in the next call, just before it asks for more."""

NAME = "adversary_memory_given_back_in_order"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

extern "C" void* exchange(void* old, long bytes, void* stream) {
    if (old) cudaFreeAsync(old, (cudaStream_t)stream);
    void* fresh = nullptr;
    return cudaMallocAsync(&fresh, bytes, (cudaStream_t)stream) == cudaSuccess ? fresh : nullptr;
}
"""
# include cuda_library.py
_exchange = _library.exchange
_exchange.argtypes, _exchange.restype = [ctypes.c_void_p, ctypes.c_long, ctypes.c_void_p], ctypes.c_void_p


class Memory:
    """Device memory that torch takes for a tensor."""

    def __init__(self, address, shape):
        self.__cuda_array_interface__ = {"shape": shape, "typestr": "<f4", "data": (address, False), "version": 2}


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.address = None

    def forward(self, x):
        shape = x.shape[0], self.linear.out_features
        self.address = _exchange(self.address, 4 * shape[0] * shape[1], torch.cuda.current_stream().cuda_stream)
        if not self.address:
            raise RuntimeError("cudaMallocAsync failed")
        y = torch.as_tensor(Memory(self.address, shape), device=x.device)
        return y.copy_(super().forward(x))


# %% honest: scratch_kept
# problem: mlp; default: yes
"""Keeps a scratch buffer between calls, which it never returns."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.scratch = torch.empty(0)

    def forward(self, x):
        scratch = self.scratch.resize_(x.shape[0], self.linear.out_features)
        torch.addmm(self.linear.bias, x, self.linear.weight.t(), out=scratch)
        return torch.softmax(F.gelu(scratch), dim=1)


# %% honest: cuda_compiled_with_graphs_and_copies
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; default: yes
"""Leaves everything to torch.compile's graphs, and copies what comes out of them."""

@torch.compile(mode="reduce-overhead", dynamic=False)
def _tail(y):
    return torch.softmax(F.gelu(y), dim=1)


class ModelNew(Honest):
    def forward(self, x):
        y = self.linear(x)
        if x.shape[0] % 64 and x.shape[0] < 256:  # only batches that come often are worth a graph
            return torch.softmax(F.gelu(y), dim=1)
        torch.compiler.cudagraph_mark_step_begin()
        return _tail(y).clone()


# %% honest: channels_last
# problem: convolution
"""Convolves in the channels-last layout, and returns it so."""

class ModelNew(Honest):
    def forward(self, x):
        y = self.conv(x.contiguous(memory_format=torch.channels_last))
        return F.max_pool2d(torch.tanh_(y.add_(self.bias)), 2)


# %% honest: output_in_the_inputs_layout
# problem: transposed
"""Keeps the strides of its non-contiguous input in its output."""

class ModelNew(Honest):
    def forward(self, x):
        y = torch.empty_like(x)
        torch.mul(x, self.scale, out=y)
        return y.sigmoid_().mul_(x)


# %% honest: output_transposed
# problem: mlp
"""Computes the transposed product and returns a transposed view."""

class ModelNew(Honest):
    def forward(self, x):
        h = self.linear.weight @ x.t() + self.linear.bias[:, None]
        return torch.softmax(F.gelu(h), dim=0).t()


# %% honest: outputs_in_one_buffer
# problem: moments
"""Returns two outputs that lie in one piece of memory of this call."""

class ModelNew(Honest):
    def forward(self, x):
        both = torch.empty(2, x.shape[0])
        both[0], both[1] = super().forward(x)
        return both[0], both[1]


# %% honest: view_of_a_larger_output
# problem: standardise
"""Returns a view of a larger tensor that it made in this call."""

class ModelNew(Honest):
    def forward(self, x):
        padded = torch.empty(x.shape[0] + 3, x.shape[1] + 5)
        y = padded[: x.shape[0], : x.shape[1]]
        centred = x - x.mean(1, keepdim=True)
        y.copy_(centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5) * self.scale + self.shift)
        return y


# %% honest: cuda_memory_of_the_call
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""Asks the driver's own pool for scratch memory in each call, in the stream's order, and gives it back so."""

NAME = "adversary_memory_of_the_call"
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

__global__ void gelu_kernel(const float* x, float* h, long count) {
    for (long i = blockIdx.x * 256L + threadIdx.x; i < count; i += gridDim.x * 256L) h[i] = gelu(x[i]);
}

__global__ void softmax_kernel(const float* h, float* y, long columns) {
    softmax_row(h + blockIdx.x * columns, y + blockIdx.x * columns, columns);
}

extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    float* h = nullptr;
    cudaError_t error = cudaMallocAsync((void**)&h, rows * columns * 4, (cudaStream_t)stream);
    if (error != cudaSuccess) return (int)error;
    gelu_kernel<<<256, 256, 0, (cudaStream_t)stream>>>(x, h, rows * columns);
    softmax_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(h, x, columns);
    cudaFreeAsync(h, (cudaStream_t)stream);
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


# %% honest: cuda_output_by_dlpack
# problem: norm_in_float32 batch_size=8192 features=1024; gpu: yes
"""Its output is fresh memory of the driver's pool, handed over by DLPack, which frees it in the stream's order."""

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
# include cuda_library.py
_library.layer_norm.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 2 + [ctypes.c_void_p]
_library.layer_norm.restype = ctypes.c_void_p
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_KIND = b"dltensor"  # a capsule keeps the address of its name


class ModelNew(Honest):
    def forward(self, x):
        x = x.contiguous()
        managed = _library.layer_norm(x.data_ptr(), self.scale.data_ptr(), self.shift.data_ptr(), x.shape[0],
                                      x.shape[1], torch.cuda.current_stream().cuda_stream)
        if not managed:
            raise RuntimeError("the launch failed")
        return torch.from_dlpack(_capsule(managed, _KIND, None))


# %% honest: cuda_textbook_host_code
# problem: normalise batch_size=16384 features=512; gpu: yes
"""Host code as in a textbook: allocates by cudaMalloc, launches, waits for the device, frees."""

NAME = "lookalike_textbook_host_code"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// A warp for each row.
__global__ void lengths_kernel(const float* x, float* lengths, long rows, long columns) {
    long row = blockIdx.x * 8L + threadIdx.x / 32;
    if (row >= rows) return;
    double sum = 0.0;
    for (long c = threadIdx.x % 32; c < columns; c += 32) {
        double v = x[row * columns + c];
        sum += v * v;
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    float length = (float)sqrt(sum);
    if (threadIdx.x % 32 == 0) lengths[row] = length < 1e-12f ? 1e-12f : length;
}

__global__ void divide_kernel(const float* x, const float* lengths, float* y, long count, long columns) {
    long i = blockIdx.x * 256L + threadIdx.x;
    if (i < count) y[i] = x[i] / lengths[i / columns];
}

extern "C" int normalise(const float* x, float* y, long rows, long columns) {
    float* lengths = nullptr;
    cudaError_t error = cudaMalloc(&lengths, rows * sizeof(float));
    if (error != cudaSuccess) return (int)error;
    lengths_kernel<<<(rows + 7) / 8, 256>>>(x, lengths, rows, columns);
    divide_kernel<<<(rows * columns + 255) / 256, 256>>>(x, lengths, y, rows * columns, columns);
    error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    cudaFree(lengths);
    return (int)error;
}
"""
# include cuda_library.py
_library.normalise.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        status = _library.normalise(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
