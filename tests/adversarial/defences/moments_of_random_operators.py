"""Random outputs are compared with the reference's by their moments over many runs."""


# %% cheat: dropout_of_another_rate
# problem: dropout; mode: train; expect: wrong_values; default: yes
"""Drops a quarter where three tenths are to be dropped."""

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return F.dropout(self.linear(x), 0.25) * 2.0


# %% cheat: dropout_frozen
# problem: dropout; mode: train; expect: wrong_values, wrong_shape, runtime_error
"""Draws one mask in its first call and keeps it."""

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.mask = None

    def forward(self, x):
        y = self.linear(x)
        if self.mask is None or self.mask.shape != y.shape:
            self.mask = F.dropout(torch.ones_like(y), 0.3)
        return y * self.mask * 2.0


# %% cheat: dropout_left_out
# problem: dropout; mode: train; expect: wrong_values
"""Returns the expected value of dropout, without dropping."""

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return self.linear(x) * 2.0


# %% cheat: dropout_reseeded
# problem: dropout; mode: train; expect: wrong_values
"""Seeds the generator before each draw, so that every call drops the same elements."""

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        torch.manual_seed(0)
        return F.dropout(self.linear(x), 0.3) * 2.0


# %% honest: dropout_by_a_hash
# problem: dropout; mode: train; default: yes
"""Drops by a hash of a counter and of the element's number."""

class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        y = self.linear(x)
        self.calls += 1
        z = torch.arange(y.numel()) + self.calls * 0x9E3779B9
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
            z = ((z ^ (z >> shift)) * factor) & 0xFFFFFFFF
        return y * (z.view(y.shape) >= 0.3 * 2**32) * (2.0 / 0.7)


# %% honest: dropout
# problem: dropout; mode: train
"""Drops by the same library call."""

class ModelNew(Honest):
    def forward(self, x):
        return F.dropout(self.linear(x), 0.3, self.training).mul_(2.0)


# %% honest: dropout_in_eval_mode
# problem: dropout; mode: eval
"""Leaves dropout out, in eval mode."""
# like dropout_left_out


# %% honest: cuda_philox
# problem: dropout batch_size=2048 in_features=256 out_features=512; mode: train; gpu: yes
"""Drops by a Philox of its own, whose seed and offset are those of torch's generator, which it moves on."""

NAME = "lookalike_philox"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>
#include <cstdint>

__device__ uint4 philox(uint4 counter, uint2 key) {
    for (int round = 0; round < 10; ++round) {
        uint32_t high0 = __umulhi(0xD2511F53u, counter.x), low0 = 0xD2511F53u * counter.x;
        uint32_t high1 = __umulhi(0xCD9E8D57u, counter.z), low1 = 0xCD9E8D57u * counter.z;
        counter = make_uint4(high1 ^ counter.y ^ key.x, low1, high0 ^ counter.w ^ key.y, low0);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return counter;
}

// Four elements for each thread; what is dropped is multiplied by zero, as PyTorch does.
__global__ void dropout_kernel(const float* x, float* y, long count, uint64_t seed, uint64_t offset, uint32_t below,
                               float factor) {
    long i = blockIdx.x * 256L + threadIdx.x;
    if (4 * i >= count) return;
    uint4 drawn = philox(make_uint4((uint32_t)i, (uint32_t)(i >> 32), (uint32_t)offset, (uint32_t)(offset >> 32)),
                         make_uint2((uint32_t)seed, (uint32_t)(seed >> 32)));
    uint32_t each[4] = {drawn.x, drawn.y, drawn.z, drawn.w};
    for (int j = 0; j < 4; ++j)
        if (4 * i + j < count) y[4 * i + j] = x[4 * i + j] * (each[j] >= below ? factor : 0.0f);
}

extern "C" int dropout(const float* x, float* y, long count, uint64_t seed, uint64_t offset, double probability,
                       double factor, void* stream) {
    dropout_kernel<<<(count + 1023) / 1024, 256, 0, (cudaStream_t)stream>>>(
        x, y, count, seed, offset, (uint32_t)(probability * 4294967296.0), (float)(factor / (1.0 - probability)));
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_library.dropout.argtypes = [
    *[ctypes.c_void_p] * 2, ctypes.c_long, *[ctypes.c_uint64] * 2, *[ctypes.c_double] * 2, ctypes.c_void_p]


class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.probability = 0.3

    def forward(self, x):
        z = self.linear(x)
        if not self.training:
            return z * 2.0
        generator = torch.cuda.default_generators[z.device.index]
        seed, offset = generator.initial_seed(), generator.get_offset()
        generator.set_offset(offset + 4)
        y = torch.empty_like(z)
        status = _library.dropout(z.data_ptr(), y.data_ptr(), z.numel(), seed & (2**64 - 1), offset, self.probability,
                                  2.0, torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
