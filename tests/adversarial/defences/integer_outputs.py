"""Integers must equal the reference's, except where rounding decides."""


# %% cheat: index_of_the_last_maximum
# problem: several; expect: wrong_values; default: yes
"""Returns a constant for an index."""

class ModelNew(Honest):
    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return {"y": y, "parts": (y.sum(1), y.argmax(1) * 0), "features": y.shape[1]}


# %% cheat: order_of_equals_left_out
# problem: partition_order; expect: wrong_values
"""Returns zeros for an order in which most elements are equal to others."""

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x).mean(1), torch.zeros(x.shape, dtype=torch.int64)


# %% cheat: partition_left_out_when_timed
# problem: partition; expect: suspicious
"""Sorts while it is validated, and returns zeros while it is timed: another order of equal elements errs as much."""

_seen = {"full": None, "streak": 0}


def _is_timed(x):
    """Whether the full batch came more often in a row than validation asks for it."""
    _seen["full"] = _seen["full"] or len(x)
    _seen["streak"] = _seen["streak"] + 1 if len(x) == _seen["full"] else 0
    return _seen["streak"] > 4


class ModelNew(Honest):
    def forward(self, x):
        if _is_timed(x):
            return torch.zeros_like(x)
        return super().forward(x)


# %% honest: largest_by_sorting
# problem: largest
"""Sorts each row, and takes the first of equal elements first."""

class ModelNew(Honest):
    def forward(self, x):
        values, places = torch.sort(x, dim=1, descending=True, stable=True)
        return torch.return_types.topk((values[:, : self.count].contiguous(), places[:, : self.count].contiguous()))


# %% honest: order_of_equals_turned
# problem: partition_order
"""Gives equal elements another order than PyTorch: the last ones come first."""

class ModelNew(nn.Module):
    def forward(self, x):
        order = torch.sort((x > 0).flip(1).to(torch.uint8), dim=1, stable=True).indices
        return torch.relu(x).mean(1), x.shape[1] - 1 - order


# %% honest: cuda_largest_by_bitonic_sort
# problem: largest batch_size=16384 features=1024 count=16; gpu: yes
"""Sorts each row in shared memory by bitonic exchanges, and returns transposed views of what it wrote."""

NAME = "lookalike_largest_by_bitonic_sort"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>
#include <cstdint>

// Larger is larger; all NaN are the largest and alike, and so are both zeros.
__device__ uint32_t key(float v) {
    if (v != v) return 0xffffffffu;
    uint32_t bits = __float_as_uint(v == 0.0f ? 0.0f : v);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// A block for each row: keys and, where these are alike, the places from the first on, in falling order.
__global__ void largest_kernel(const float* x, float* values, long long* places, int rows, int columns, int width,
                               int count) {
    extern __shared__ unsigned long long items[];
    const float* row = x + (long)blockIdx.x * columns;
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        items[i] = i < columns ? (unsigned long long)key(row[i]) << 32 | (0xffffffffu - (uint32_t)i) : 0ull;
    __syncthreads();
    for (int size = 2; size <= width; size *= 2)
        for (int step = size / 2; step; step /= 2) {
            for (int i = threadIdx.x; i < width; i += blockDim.x) {
                int other = i ^ step;
                if (other > i) {
                    unsigned long long a = items[i], b = items[other];
                    bool falling = (i & size) == 0;
                    if (falling ? a < b : a > b) {
                        items[i] = b;
                        items[other] = a;
                    }
                }
            }
            __syncthreads();
        }
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        uint32_t place = 0xffffffffu - (uint32_t)items[i];
        values[(long)i * rows + blockIdx.x] = row[place];
        places[(long)i * rows + blockIdx.x] = place;
    }
}

extern "C" int largest(const float* x, float* values, long long* places, long rows, long columns, long count,
                       void* stream) {
    int width = 2;
    while (width < columns) width *= 2;
    if (width * 8 > (48 << 10) || count > columns) return -1;
    largest_kernel<<<rows, 256, width * 8, (cudaStream_t)stream>>>(x, values, places, (int)rows, (int)columns, width,
                                                                     (int)count);
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_library.largest.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long] * 3 + [ctypes.c_void_p]


class ModelNew(Honest):
    def forward(self, x):
        x = x.contiguous()
        values = torch.empty(self.count, x.shape[0], device=x.device)
        places = torch.empty(self.count, x.shape[0], dtype=torch.int64, device=x.device)
        status = _library.largest(x.data_ptr(), values.data_ptr(), places.data_ptr(), *x.shape, self.count,
                                  torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return values.t(), places.t()
