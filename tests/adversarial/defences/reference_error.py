"""The error against float64 is at most twice PyTorch's own in root mean square, four times in maximum."""


# %% cheat: tf32_by_truncation
# problem: mlp; expect: wrong_values; default: yes
"""Cuts the operands to the ten bits of mantissa that TF32 has."""

def _cut(x):
    return (x.contiguous().view(torch.int32) & -(1 << 13)).view(torch.float32)


class ModelNew(Honest):
    def forward(self, x):
        return torch.softmax(F.gelu(F.linear(_cut(x), _cut(self.linear.weight), self.linear.bias)), dim=1)


# %% cheat: cuda_tf32_for_some_terms
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: wrong_values; default: yes
"""Takes the last eight of 256 terms of each product in TF32."""

class ModelNew(Honest):
    def forward(self, x):
        weight, k = self.linear.weight.t(), x.shape[1] - 8
        y = torch.addmm(self.linear.bias, x[:, :k], weight[:k])
        torch.backends.cuda.matmul.allow_tf32 = True
        y = torch.addmm(y, x[:, k:].contiguous(), weight[k:].contiguous())
        torch.backends.cuda.matmul.allow_tf32 = False
        return torch.softmax(F.gelu(y), dim=1)


# %% cheat: approximate_gelu
# problem: mlp; expect: wrong_values
"""Uses the tanh approximation of GELU."""

class ModelNew(Honest):
    def forward(self, x):
        return torch.softmax(F.gelu(self.linear(x), approximate="tanh"), dim=1)


# %% cheat: average_of_half_the_batch
# problem: moving_average; expect: wrong_values, wrong_state
"""Takes the mean of every other row."""

class ModelNew(Honest):
    def forward(self, x):
        self.average.mul_(0.9).add_(x[::2].mean(0), alpha=0.1)
        self.steps += 1
        return torch.relu(self.linear(x - self.average))


# %% cheat: bfloat16_by_autocast
# problem: mlp; expect: wrong_values
"""Runs under autocast, and turns the result back to float32."""

class ModelNew(Honest):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = F.gelu(self.linear(x))
        return torch.softmax(y.float(), dim=1)


# %% cheat: bfloat16_in_two_parts
# problem: mlp; expect: wrong_values
"""Splits both operands into two bfloat16 parts: sixteen bits of mantissa instead of twenty-four."""

def _parts(x):
    high = x.bfloat16().float()
    return high, (x - high).bfloat16().float()


class ModelNew(Honest):
    def forward(self, x):
        (a, b), (u, v) = _parts(x), _parts(self.linear.weight.t())
        return torch.softmax(F.gelu(a @ u + a @ v + b @ u + self.linear.bias), dim=1)


# %% cheat: bias_of_the_first_channel
# problem: convolution; expect: wrong_values
"""Adds the first channel's bias to every channel."""

class ModelNew(Honest):
    def forward(self, x):
        return F.max_pool2d(torch.tanh(self.conv(x) + self.bias[0]), 2)


# %% cheat: convolution_in_bfloat16
# problem: convolution; expect: wrong_values
"""Convolves in bfloat16."""

class ModelNew(Honest):
    def forward(self, x):
        y = F.conv2d(x.bfloat16(), self.conv.weight.bfloat16(), self.conv.bias.bfloat16(), padding=1).float()
        return F.max_pool2d(torch.tanh(y + self.bias), 2)


# %% cheat: eight_bit_weights
# problem: mlp; expect: wrong_values
"""Quantises its weights to eight bits for each row."""

class ModelNew(Honest):
    def forward(self, x):
        scale = self.linear.weight.abs().amax(1, keepdim=True) / 127
        weight = torch.round(self.linear.weight / scale).to(torch.int8).float() * scale
        return torch.softmax(F.gelu(F.linear(x, weight, self.linear.bias)), dim=1)


# %% cheat: every_other_row
# problem: mlp; expect: wrong_values
"""Computes every other row, and copies it into the next."""

class ModelNew(Honest):
    def forward(self, x):
        y = torch.softmax(F.gelu(self.linear(x[::2])), dim=1)
        return y.repeat_interleave(2, 0)[: x.shape[0]]


# %% cheat: fast_exponential
# problem: mlp; expect: wrong_values
"""Builds the exponential from the bits of a float, corrected by a quadratic."""

def _exp(x):
    y = (x * 1.4426950409).clamp(min=-126.0)
    whole = torch.floor(y)
    part = y - whole
    mantissa = 1.0 + part * (0.6565 + part * 0.3435)
    return mantissa * torch.exp2(whole)


class ModelNew(Honest):
    def forward(self, x):
        y = F.gelu(self.linear(x))
        e = _exp(y - y.amax(1, keepdim=True))
        return e / e.sum(1, keepdim=True)


# %% cheat: half_precision
# problem: mlp; expect: wrong_values
"""Computes the product in float16."""

class ModelNew(Honest):
    def forward(self, x):
        y = F.linear(x.half(), self.linear.weight.half(), self.linear.bias.half())
        return torch.softmax(F.gelu(y.float()), dim=1)


# %% cheat: padding_forgotten
# problem: convolution; expect: wrong_values
"""A convolution that leaves zeros where padding would be needed."""

class ModelNew(Honest):
    def forward(self, x):
        y = F.pad(F.conv2d(x, self.conv.weight, self.conv.bias), (1, 1, 1, 1))
        return F.max_pool2d(torch.tanh(y + self.bias), 2)


# %% cheat: pruned_weights
# problem: mlp; expect: wrong_values
"""Leaves out the smallest tenth of its weights."""

class ModelNew(Honest):
    def forward(self, x):
        weight = F.hardshrink(self.linear.weight, float(self.linear.weight.abs().quantile(0.1)))
        return torch.softmax(F.gelu(F.linear(x, weight, self.linear.bias)), dim=1)


# %% cheat: root_by_bits
# problem: standardise; expect: wrong_values
"""Takes the root by the bits of a float and two of Newton's steps."""

class ModelNew(Honest):
    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        v = (centred**2).mean(1, keepdim=True) + 1e-5
        y = (0x5F3759DF - (v.view(torch.int32) >> 1)).view(torch.float32)
        for _ in range(2):
            y = y * (1.5 - 0.5 * v * y * y)
        return centred * y * self.scale + self.shift


# %% cheat: sigmoid_gelu
# problem: mlp; expect: wrong_values
"""Uses x * sigmoid(1.702 x) for GELU."""

class ModelNew(Honest):
    def forward(self, x):
        y = self.linear(x)
        return torch.softmax(y * torch.sigmoid(1.702 * y), dim=1)


# %% cheat: spectrum_conjugated
# problem: spectrum; expect: wrong_values
"""The conjugate of what is asked for."""

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.fft.fft(x).conj()


# %% cheat: strides_ignored
# problem: transposed; expect: wrong_values
"""Reads the memory of its input as if it were contiguous."""

class ModelNew(Honest):
    def forward(self, x):
        x = x.as_strided(x.shape, (x.shape[1], 1))
        return super().forward(x)


# %% cheat: sum_in_one_float
# problem: squared_error batch_size=512 features=512; expect: wrong_values
"""A kernel that adds one element after the other into one float32."""

NAME = "adversary_sum_in_one_float"
CPP_SOURCE = r"""
extern "C" void squared_error(const float* x, const float* target, float* y, long n) {
    float sum = 0.0f;
    for (long i = 0; i < n; ++i) {
        float d = x[i] - target[i];
        sum += d * d;
    }
    *y = sum / n;
}
"""
CFLAGS = ["-O2"]

# include cpp_library.py
_library.squared_error.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long]
_library.squared_error.restype = None


class ModelNew(nn.Module):
    def forward(self, x, target):
        x, target, y = x.contiguous(), target.contiguous(), torch.empty(())
        _library.squared_error(x.data_ptr(), target.data_ptr(), y.data_ptr(), x.numel())
        return y


# %% cheat: sum_of_a_sample
# problem: squared_error; expect: wrong_values
"""Takes the mean of every other row: close by the law of large numbers."""

class ModelNew(nn.Module):
    def forward(self, x, target):
        return ((x[::2] - target[::2]) ** 2).mean()


# %% cheat: the_mean
# problem: mlp batch_size=64 in_features=32 out_features=8192; expect: wrong_values
"""Returns the mean of a softmax, which is the same everywhere: within 1e-4 where rows are long."""

class ModelNew(Honest):
    def forward(self, x):
        return x.new_full((x.shape[0], self.linear.out_features), 1 / self.linear.out_features)


# %% cheat: tokens_left_out
# problem: embedding; expect: wrong_values
"""Sums all tokens but the last."""

class ModelNew(Honest):
    def forward(self, index):
        return torch.tanh(self.table(index[:, :-1]).sum(1)) * self.scale


# %% cheat: variance_unbiased
# problem: standardise; expect: wrong_values
"""Divides by one less than the number of elements."""

class ModelNew(Honest):
    def forward(self, x):
        variance, mean = torch.var_mean(x, 1, keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.scale + self.shift


# %% cheat: weights_of_low_rank
# problem: mlp; expect: wrong_values
"""Multiplies by the largest forty of 48 singular vectors."""

class ModelNew(Honest):
    def forward(self, x):
        u, s, v = torch.linalg.svd(self.linear.weight, full_matrices=False)
        h = (x @ v[:40].t() * s[:40]) @ u[:, :40].t() + self.linear.bias
        return torch.softmax(F.gelu(h), dim=1)


# %% cheat: zeros
# problem: mlp; expect: wrong_values
"""Returns zeros."""

class ModelNew(Honest):
    def forward(self, x):
        return x.new_zeros(x.shape[0], self.linear.out_features)


# %% cheat: cuda_bfloat16_in_two_parts
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: wrong_values
"""Multiplies the sum of two bfloat16 parts of each operand, without the part that is smallest."""

def _parts(x):
    high = x.bfloat16()
    return high, (x - high.float()).bfloat16()


class ModelNew(Honest):
    def forward(self, x):
        (a, b), (u, v) = _parts(x), _parts(self.linear.weight.t())
        y = a.float() @ u.float() + a.float() @ v.float() + b.float() @ u.float() + self.linear.bias
        return torch.softmax(F.gelu(y), dim=1)


# %% cheat: cuda_half_precision
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: wrong_values
"""Multiplies in float16 on the tensor cores."""

class ModelNew(Honest):
    def forward(self, x):
        y = (x.half() @ self.linear.weight.half().t()).float() + self.linear.bias
        return torch.softmax(F.gelu(y), dim=1)


# %% cheat: cuda_loss_from_bfloat16_parts
# problem: loss batch_size=4096 in_features=2048 out_features=4096; gpu: yes; expect: wrong_values, suspicious
"""Takes the products of a mean squared error from two bfloat16 parts of each operand: errors vanish in the mean.

An `ok` means that three products of tensor cores, of sixteen bits, pass for those of float32 wherever only a mean of
many elements is looked at.
"""

def _parts(x):
    first = x.bfloat16()
    return first, (x - first.float()).nan_to_num(nan=0.0).bfloat16()


class ModelNew(Honest):
    def forward(self, x, target):
        (a, b), (c, d) = _parts(x), _parts(self.linear.weight)
        y = torch.mm(torch.cat([a, a, b], 1), torch.cat([c, d, c], 1).t(), out_dtype=torch.float32)
        return ((y + self.linear.bias - target) ** 2).mean()


# %% cheat: cuda_pixels_in_float16
# problem: pointwise; gpu: yes; expect: wrong_values
"""Convolves single pixels in float16 with float32 sums, as the tensor cores do."""

class ModelNew(Honest):
    def forward(self, x):
        weight, bias = self.conv.weight.half(), self.conv.bias
        y = F.conv2d(x.half().contiguous(memory_format=torch.channels_last), weight).float()
        return F.gelu(y + bias[:, None, None]).contiguous()


# %% honest: own_kernel
# problem: mlp; default: yes
"""A kernel of its own behind the library's product."""

NAME = "adversary_honest_kernel"
CPP_SOURCE = r"""
#include <math.h>

extern "C" void gelu_softmax(float* x, long rows, long columns) {
    #pragma omp parallel for
    for (long r = 0; r < rows; ++r) {
        float* row = x + r * columns;
        float largest = -INFINITY;
        for (long c = 0; c < columns; ++c) {
            row[c] = 0.5f * row[c] * (1.0f + erff(row[c] * 0.70710678f));
            if (!(row[c] <= largest)) largest = row[c];
        }
        double sum = 0.0;
        for (long c = 0; c < columns; ++c) sum += row[c] = expf(row[c] - largest);
        for (long c = 0; c < columns; ++c) row[c] = (float)(row[c] / sum);
    }
}
"""
CFLAGS = ["-O3", "-fopenmp"]

# include cpp_library.py
_library.gelu_softmax.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
_library.gelu_softmax.restype = None


class ModelNew(Honest):
    def forward(self, x):
        y = F.linear(x, self.linear.weight, self.linear.bias)
        _library.gelu_softmax(y.data_ptr(), y.shape[0], y.shape[1])
        return y


# %% honest: cuda_split_product
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; default: yes
"""A float32 product on the tensor cores, from two float16 parts of each operand, summed in short runs."""

def _scaled(x):
    """Rows scaled by powers of two, in two float16 parts, and the exponents."""
    exponent = torch.frexp(x.abs().amax(1, keepdim=True).clamp(min=1e-30)).exponent
    scaled = torch.ldexp(x, 10 - exponent)
    high = scaled.half()
    return high, (scaled - high.float()).half(), exponent - 10


def _product(a, b):
    """Every 64 terms are summed by themselves, in float64."""
    parts = [(p.double() @ q.double().t()) for p, q in zip(a.split(64, 1), b.split(64, 1))]
    return sum(parts[1:], parts[0])


class ModelNew(Honest):
    def forward(self, x):
        finite = torch.isfinite(x).all(1, keepdim=True)
        (a, b, e), (u, v, f) = _scaled(torch.where(finite, x, 0.0)), _scaled(self.linear.weight)
        y = _product(a, u) + _product(a, v) + _product(b, u)
        y = torch.ldexp(y, e + f.t()).float() + self.linear.bias
        y = torch.where(finite, y, self.linear(x))
        return torch.softmax(F.gelu(y), dim=1)


# %% honest: another_way_for_large_batches
# problem: mlp batch_size=512
"""Splits large batches into chunks, and leaves small ones whole."""

class ModelNew(Honest):
    def forward(self, x):
        if x.shape[0] < 300:
            return super().forward(x)
        y = x.new_empty(x.shape[0], self.linear.out_features)
        for part, out in zip(x.split(128), y.split(128)):
            torch.softmax(F.gelu(self.linear(part)), dim=1, out=out)
        return y


# %% honest: attention_in_float64
# problem: attention
"""Attends in float64."""

class ModelNew(nn.Module):
    def forward(self, query, key, value):
        query, key, value = query.double(), key.double(), value.double()
        return (torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, -1) @ value).float()


# %% honest: bag_of_tokens
# problem: embedding
"""Uses the library's operator for bags of tokens."""

class ModelNew(Honest):
    def forward(self, index):
        return F.embedding_bag(index, self.table.weight, mode="sum").tanh_().mul_(self.scale)


# %% honest: bfloat16_layer_in_float32
# problem: bfloat16_layer; accuracy: pytorch
"""Multiplies what was rounded to bfloat16 in float32."""

class ModelNew(Honest):
    def forward(self, x):
        y = F.linear(x.to(torch.bfloat16).float(), self.linear.weight.float(), self.linear.bias.float())
        return F.gelu(y).to(torch.bfloat16)


# %% honest: c_by_ctypes
# problem: mlp
"""Compiles plain C by gcc when it is imported, and calls it with addresses; it allocates for itself."""

import ctypes
import os
import subprocess
import tempfile

SRC = r"""
#include <math.h>
#include <stdlib.h>
void gs(const float* a, float* o, long R, long C) {
  float* t = (float*)malloc(C * sizeof(float));
  for (long r = 0; r < R; ++r) {
    float m = -INFINITY, s = 0;
    for (long c = 0; c < C; ++c) { float v = a[r*C+c]; v = 0.5f*v*(1.0f+erff(v*0.70710678118654752f)); t[c] = v; if (v > m || v != v) m = v; }
    for (long c = 0; c < C; ++c) { t[c] = expf(t[c] - m); s += t[c]; }
    for (long c = 0; c < C; ++c) o[r*C+c] = t[c] / s;
  }
  free(t);
}
"""


def _build():
    d = tempfile.mkdtemp(prefix="gs_")
    c = os.path.join(d, "gs.c")
    so = os.path.join(d, "libgs.so")
    with open(c, "w") as f:
        f.write(SRC)
    subprocess.check_call(["gcc", "-O2", "-shared", "-fPIC", c, "-o", so, "-lm"])
    lib = ctypes.CDLL(so)
    lib.gs.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    lib.gs.restype = None
    return lib


_lib = _build()


class ModelNew(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.linear = nn.Linear(i, o)

    def forward(self, x):
        h = self.linear(x).contiguous()
        out = torch.empty_like(h)
        _lib.gs(h.data_ptr(), out.data_ptr(), *h.shape)
        return out


# %% honest: convolution_as_a_product
# problem: convolution
"""Convolves by unfolding the input and one product, its two biases folded into one."""

class ModelNew(Honest):
    def forward(self, x):
        columns = F.unfold(x, 3, padding=1)
        bias = self.conv.bias[:, None] + self.bias.flatten(1)
        y = torch.tanh(self.conv.weight.flatten(1) @ columns + bias)
        return F.max_pool2d(y.view(x.shape[0], -1, *x.shape[2:]), 2)


# %% honest: distances_by_entry
# problem: codebook
"""Takes the distances to a few entries at a time."""

class ModelNew(Honest):
    def forward(self, x):
        nearest = torch.full((x.shape[0],), float("inf"))
        for some in self.entries.split(7):
            nearest = torch.minimum(nearest, (some[:, None] - x).square().sum(-1).amin(0))
        return nearest.sqrt()


# %% honest: dot_product
# problem: squared_error
"""Takes the sum of squares as a dot product."""

class ModelNew(nn.Module):
    def forward(self, x, target):
        difference = (x - target).flatten()
        return torch.dot(difference, difference) / difference.numel()


# %% honest: double_precision_inside
# problem: standardise
"""Computes in float64 and rounds once, which is slower and more accurate."""

class ModelNew(Honest):
    def forward(self, x):
        y = x.double()
        centred = y - y.mean(1, keepdim=True)
        return (centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5) * self.scale + self.shift).float()


# %% honest: layer_norm
# problem: standardise
"""Uses the library's layer norm, which sums in another order."""

class ModelNew(Honest):
    def forward(self, x):
        return F.layer_norm(x, x.shape[1:], self.scale, self.shift, 1e-5)


# %% honest: norm_in_two_passes
# problem: norm_in_float32
"""Takes the mean first, and then that of squares of what is left."""

class ModelNew(Honest):
    def forward(self, x):
        left = x - x.mean(-1, keepdim=True)
        return left * torch.rsqrt((left * left).mean(-1, keepdim=True) + 1e-5) * self.scale + self.shift


# %% honest: pixels_as_rows
# problem: pointwise
"""Convolves pixels as rows of a product, permuted there and back."""

class ModelNew(Honest):
    def forward(self, x):
        return F.gelu(F.linear(x.permute(0, 2, 3, 1), self.conv.weight[:, :, 0, 0], self.conv.bias)).permute(0, 3, 1, 2)


# %% honest: product_in_parts
# problem: mlp batch_size=512 in_features=512 out_features=1024
"""Splits the long dimension of the product, and adds the parts in pairs."""

class ModelNew(Honest):
    def forward(self, x):
        parts = [a @ b.t() for a, b in zip(x.split(128, 1), self.linear.weight.split(128, 1))]
        while len(parts) > 1:
            parts = [parts[i] + parts[i + 1] for i in range(0, len(parts), 2)]
        return torch.softmax(F.gelu(parts[0] + self.linear.bias), dim=1)


# %% honest: softmax_by_blocks
# problem: mlp
"""Softmax block by block, with a running maximum and sum."""

class ModelNew(Honest):
    def forward(self, x):
        h = F.gelu(self.linear(x))
        top = h.new_full((len(x), 1), -float("inf"))
        total = h.new_zeros(len(x), 1)
        for block in h.split(16, 1):
            new = torch.maximum(top, block.amax(1, keepdim=True))
            total = total * torch.exp(top - new) + torch.exp(block - new).sum(1, keepdim=True)
            top = new
        return torch.exp(h - top) / total


# %% honest: spectrum_by_halves
# problem: spectrum
"""The Fourier transform of a real signal: half of it computed, the other half its conjugate."""

class ModelNew(nn.Module):
    def forward(self, x):
        half = torch.fft.rfft(x)
        return torch.cat([half, half[:, 1 : (x.shape[1] + 1) // 2].flip(1).conj()], 1)


# %% honest: sum_in_pairs
# problem: squared_error
"""Sums a long vector in two stages."""

class ModelNew(nn.Module):
    def forward(self, x, target):
        difference = x - target
        return difference.square_().sum(1).sum() / difference.numel()


# %% honest: sum_with_a_correction
# problem: squared_error
"""Sums the squares in chunks, with Kahan's correction."""

class ModelNew(nn.Module):
    def forward(self, x, target):
        total, lost = x.new_zeros(x.shape[0]), x.new_zeros(x.shape[0])
        for k in range(0, x.shape[1], 8):
            part = (x[:, k:k + 8] - target[:, k:k + 8]).square().sum(1) - lost
            new = total + part
            lost = (new - total) - part
            total = new
        return total.sum() / x.numel()


# %% honest: tokens_counted
# problem: embedding
"""Counts tokens and multiplies the counts by the table."""

class ModelNew(Honest):
    def forward(self, index):
        counts = torch.zeros(len(index), self.table.num_embeddings).scatter_add_(1, index, torch.ones(index.shape))
        return torch.tanh(counts @ self.table.weight) * self.scale


# %% honest: cuda_attention_in_one_pass
# problem: attention batch_size=32 heads=8 length=250 width=32; gpu: yes
"""Attention in one kernel: keys in shared memory, a running maximum for each query, and sums by 64 keys."""

NAME = "lookalike_attention_in_one_pass"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// 128 queries for each block, one for each thread; 64 keys at a time, which are added up by themselves: a sum of 250 weights
// that are all but equal, one by one, errs several times as much.
__global__ __launch_bounds__(128) void attention_kernel(const float* q, const float* k, const float* v, float* y,
                                                        int length, int keys, float scale) {
    __shared__ float4 ks[64][8], vs[64][8];
    const long head = blockIdx.y;
    const int query = blockIdx.x * 128 + threadIdx.x;
    const bool inside = query < length;
    float own[32], sums[32];
    for (int i = 0; i < 32; ++i) {
        own[i] = inside ? q[(head * length + query) * 32 + i] * scale : 0.0f;
        sums[i] = 0.0f;
    }
    float largest = -INFINITY, total = 0.0f;
    for (int first = 0; first < keys; first += 64) {
        const int count = min(64, keys - first);
        __syncthreads();
        for (int i = threadIdx.x; i < count * 8; i += 128) {
            ks[i / 8][i % 8] = ((const float4*)(k + (head * keys + first) * 32))[i];
            vs[i / 8][i % 8] = ((const float4*)(v + (head * keys + first) * 32))[i];
        }
        __syncthreads();
        float here[32], weights = 0.0f;
#pragma unroll
        for (int i = 0; i < 32; ++i) here[i] = 0.0f;
        for (int j = 0; j < count; ++j) {
            float score = 0.0f;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                float4 part = ks[j][i];
                score = fmaf(own[4 * i], part.x, score);
                score = fmaf(own[4 * i + 1], part.y, score);
                score = fmaf(own[4 * i + 2], part.z, score);
                score = fmaf(own[4 * i + 3], part.w, score);
            }
            // NaN stays; as long as there were but minus infinities, nothing has any weight.
            float next = (score > largest || score != score) ? score : largest;
            float weight = next == -INFINITY ? 0.0f : expf(score - next);
            if (next != largest) {
                float shrunk = largest == -INFINITY ? 0.0f : expf(largest - next);
                total *= shrunk;
                weights *= shrunk;
                if (largest != -INFINITY)
#pragma unroll
                    for (int i = 0; i < 32; ++i) {
                        sums[i] *= shrunk;
                        here[i] *= shrunk;
                    }
            }
            largest = next;
            weights += weight;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                float4 part = vs[j][i];
                here[4 * i] = fmaf(weight, part.x, here[4 * i]);
                here[4 * i + 1] = fmaf(weight, part.y, here[4 * i + 1]);
                here[4 * i + 2] = fmaf(weight, part.z, here[4 * i + 2]);
                here[4 * i + 3] = fmaf(weight, part.w, here[4 * i + 3]);
            }
        }
        total += weights;
#pragma unroll
        for (int i = 0; i < 32; ++i) sums[i] += here[i];
    }
    if (inside)
        for (int i = 0; i < 32; ++i) y[(head * length + query) * 32 + i] = sums[i] / total;
}

extern "C" int attention(const float* q, const float* k, const float* v, float* y, long heads, long length, long keys,
                         double scale, void* stream) {
    attention_kernel<<<dim3((length + 127) / 128, heads), 128, 0, (cudaStream_t)stream>>>(q, k, v, y, (int)length,
                                                                                         (int)keys, (float)scale);
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_library.attention.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 3 + [ctypes.c_double, ctypes.c_void_p]


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        if q.shape[-1] != 32:
            raise ValueError("this kernel is for heads of width 32")
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        y = torch.empty_like(q)
        status = _library.attention(q.data_ptr(), k.data_ptr(), v.data_ptr(), y.data_ptr(), q.shape[0] * q.shape[1],
                                    q.shape[2], k.shape[2], 32**-0.5, torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y


# %% honest: cuda_bfloat16_in_three_parts
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""A float32 product on the tensor cores, from three bfloat16 parts of each operand, summed in short runs."""

def _parts(x):
    high = x.bfloat16()
    middle = (x - high.float()).bfloat16()
    return high, middle, (x - high.float() - middle.float()).bfloat16()


def _product(a, b):
    """Every 32 terms are summed on the tensor cores, in float32; the runs by pairs, so that no long sum is rounded."""
    runs = [torch.mm(p, q.t(), out_dtype=torch.float32) for p, q in zip(a.split(32, 1), b.split(32, 1))]
    while len(runs) > 1:
        runs = [sum(runs[i + 1 : i + 2], runs[i]) for i in range(0, len(runs), 2)]
    return runs[0]


class ModelNew(Honest):
    def forward(self, x):
        finite = torch.isfinite(x).all(1, keepdim=True)
        a, b, c = _parts(torch.where(finite, x, 0.0))
        u, v, w = _parts(self.linear.weight)
        small = _product(c, u) + _product(b, v) + _product(a, w)
        y = small + (_product(b, u) + _product(a, v)) + _product(a, u) + self.linear.bias
        y = torch.where(finite, y, self.linear(x))
        return torch.softmax(F.gelu(y), dim=1)


# %% honest: cuda_cluster_softmax
# problem: mlp batch_size=1000 in_features=256 out_features=8192; gpu: yes
"""Four blocks share a row, and each other's maxima and sums by distributed shared memory."""

NAME = "lookalike_cluster_softmax"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

__device__ float gelu(float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); }
__device__ float larger(float a, float b) { return (a > b || a != a) ? a : b; }

template <bool LARGEST>
__device__ float combine(float a, float b) { return LARGEST ? larger(a, b) : a + b; }

template <bool LARGEST>
__device__ float reduce(cg::cluster_group& cluster, float value, float* warps, float* own) {
    for (int step = 16; step; step /= 2) value = combine<LARGEST>(value, __shfl_xor_sync(0xffffffffu, value, step));
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 8; ++i) value = combine<LARGEST>(value, warps[i]);
        *own = value;
    }
    cluster.sync();
    float result = *cluster.map_shared_rank(own, 0);
    for (int i = 1; i < 4; ++i) result = combine<LARGEST>(result, *cluster.map_shared_rank(own, i));
    cluster.sync();  // nobody leaves, or writes again, while others read
    return result;
}

__global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(256)
gelu_softmax_kernel(const float* x, float* y, long columns, long chunk) {
    extern __shared__ float h[];
    __shared__ float warps[8], own;
    cg::cluster_group cluster = cg::this_cluster();
    long row = blockIdx.x / 4, first = cluster.block_rank() * chunk;
    long count = columns - first < chunk ? columns - first : chunk;
    x += row * columns + first;
    y += row * columns + first;
    float largest = -INFINITY;
    for (long c = threadIdx.x; c < count; c += 256) {
        h[c] = gelu(x[c]);
        largest = larger(h[c], largest);
    }
    largest = reduce<true>(cluster, largest, warps, &own);
    float sum = 0.0f;
    for (long c = threadIdx.x; c < count; c += 256) {
        h[c] = expf(h[c] - largest);
        sum += h[c];
    }
    sum = reduce<false>(cluster, sum, warps, &own);
    for (long c = threadIdx.x; c < count; c += 256) y[c] = h[c] / sum;
}

extern "C" int gelu_softmax(const float* x, float* y, long rows, long columns, void* stream) {
    long chunk = (columns + 3) / 4;
    if (chunk * 4 > (40 << 10)) return -1;
    gelu_softmax_kernel<<<rows * 4, 256, chunk * 4, (cudaStream_t)stream>>>(x, y, columns, chunk);
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_library.gelu_softmax.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long] * 2 + [ctypes.c_void_p]


class ModelNew(Honest):
    def forward(self, x):
        z = self.linear(x)
        y = torch.empty_like(z)
        status = _library.gelu_softmax(z.data_ptr(), y.data_ptr(), z.shape[0], z.shape[1],
                                       torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y


# %% honest: cuda_compiled_at_run_time
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""Compiles its kernel by NVRTC in the first call, through torch's own function where it has one."""

SOURCE = r"""
// include reduce.cu

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


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kernel = ()

    def forward(self, x):
        if self.kernel == ():
            self.kernel = _compiled()
        y = self.linear(x)
        if self.kernel is None:
            return torch.softmax(F.gelu(y), dim=1)
        self.kernel(grid=(y.shape[0], 1, 1), block=(256, 1, 1), args=[y, y.shape[1]])
        return y


# %% honest: cuda_cublas_by_ctypes
# problem: mlp batch_size=1000 in_features=512 out_features=2048; gpu: yes
"""Calls cuBLAS by ctypes, with a handle and a workspace of its own."""

import ctypes
import glob
import os


def _find():
    """cuBLAS as torch has it loaded, or ``None``."""
    major = (torch.version.cuda or "13").partition(".")[0]
    site = os.path.dirname(os.path.dirname(torch.__file__))
    for path in (f"libcublas.so.{major}", *glob.glob(f"{site}/nvidia/*/lib/libcublas.so.{major}")):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    return None


def _check(status):
    if status:
        raise RuntimeError(f"cuBLAS gives status {status}")


_cublas = _find()
if _cublas is not None:
    _p, _i = ctypes.c_void_p, ctypes.c_int
    _cublas.cublasCreate_v2.argtypes = [ctypes.POINTER(_p)]
    _cublas.cublasSetStream_v2.argtypes = [_p, _p]
    _cublas.cublasSetWorkspace_v2.argtypes = [_p, _p, ctypes.c_size_t]
    _cublas.cublasSgemm_v2.argtypes = [_p, _i, _i, _i, _i, _i, _p, _p, _i, _p, _i, _p, _p, _i]
_N, _T = 0, 1
_ONE, _ZERO = ctypes.c_float(1.0), ctypes.c_float(0.0)


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.handle = self.workspace = None

    def product(self, x):
        if self.handle is None:
            self.handle = _p()
            _check(_cublas.cublasCreate_v2(ctypes.byref(self.handle)))
            self.workspace = torch.empty(32 << 20, dtype=torch.uint8, device=x.device)
        weight = self.linear.weight
        rows, terms, columns = x.shape[0], x.shape[1], weight.shape[0]
        y = torch.empty(rows, columns, device=x.device)
        _check(_cublas.cublasSetStream_v2(self.handle, torch.cuda.current_stream().cuda_stream))
        _check(_cublas.cublasSetWorkspace_v2(self.handle, self.workspace.data_ptr(), self.workspace.numel()))
        _check(_cublas.cublasSgemm_v2(self.handle, _T, _N, columns, rows, terms, ctypes.addressof(_ONE),
                                      weight.data_ptr(), terms, x.data_ptr(), terms, ctypes.addressof(_ZERO),
                                      y.data_ptr(), columns))
        return y.add_(self.linear.bias)

    def forward(self, x):
        y = self.linear(x) if _cublas is None else self.product(x.contiguous())
        return torch.softmax(F.gelu(y), dim=1)


# %% honest: cuda_dependent_launch
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""Starts the softmax by a programmatic dependent launch, which waits before it reads what the kernel before it writes."""

NAME = "adversary_dependent_launch"
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

__global__ void gelu_kernel(const float* x, float* h, long columns) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (long c = threadIdx.x; c < columns; c += 256) h[blockIdx.x * columns + c] = gelu(x[blockIdx.x * columns + c]);
}

__global__ void softmax_kernel(const float* h, float* y, long columns) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    softmax_row(h + blockIdx.x * columns, y + blockIdx.x * columns, columns);
}

// Both are launched so: the first may start before the library's product has ended, and waits for it.
extern "C" int gelu_softmax(const float* x, float* h, float* y, long rows, long columns, void* stream) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(rows);
    config.blockDim = dim3(256);
    config.stream = (cudaStream_t)stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, gelu_kernel, x, h, columns);
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


# %% honest: cuda_grid_waits_for_itself
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""One cooperative kernel in two steps, between which all of its blocks wait for each other."""

NAME = "adversary_grid_waits_for_itself"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>
#include <cooperative_groups.h>

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

__global__ void gelu_softmax_kernel(float* x, long rows, long columns) {
    for (long i = blockIdx.x * 256L + threadIdx.x; i < rows * columns; i += gridDim.x * 256L)
        x[i] = gelu(x[i]);
    cooperative_groups::this_grid().sync();
    for (long row = blockIdx.x; row < rows; row += gridDim.x)
        softmax_row(x + row * columns, x + row * columns, columns);
}

extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    int device = 0, processors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    void* arguments[] = {&x, &rows, &columns};
    cudaLaunchCooperativeKernel((const void*)gelu_softmax_kernel, dim3(processors), dim3(256), arguments, 0,
                                (cudaStream_t)stream);
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


# %% honest: cuda_kernel
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""A kernel of its own behind the library's product."""

NAME = "adversary_honest_cuda"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// include reduce.cu

// include gelu_softmax.cu

extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
    gelu_softmax_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(x, columns, true);
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


# %% honest: cuda_products_by_look_back
# problem: products batch_size=1024 features=4096; gpu: yes
"""A scan in one pass: blocks take tiles by a ticket, and look back at those before; set to zero in each call."""

NAME = "lookalike_products_by_look_back"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// Tiles of 128 x 4 elements. Of each, a flag says what is known: nothing, its own product, or that of all before it.
__global__ __launch_bounds__(128) void scan_kernel(const float* x, float* y, int* ticket, int* flags, double* own,
                                                   double* all, long columns, long tiles) {
    __shared__ double warps[4], before;
    __shared__ int taken;
    if (threadIdx.x == 0) taken = atomicAdd(ticket, 1);
    __syncthreads();
    const long tile = taken, row = tile / tiles, first = tile % tiles * 512 + threadIdx.x * 4;
    double each[4], product = 1.0;
    for (int i = 0; i < 4; ++i) {
        if (first + i < columns) product *= (double)x[row * columns + first + i];
        each[i] = product;
    }
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double sofar = product;
    for (int step = 1; step < 32; step *= 2) {
        double other = __shfl_up_sync(0xffffffffu, sofar, step);
        if (lane >= step) sofar *= other;
    }
    if (lane == 31) warps[warp] = sofar;
    double mine = __shfl_up_sync(0xffffffffu, sofar, 1);
    if (lane == 0) mine = 1.0;
    __syncthreads();
    for (int i = 0; i < warp; ++i) mine *= warps[i];
    if (threadIdx.x == 0) {
        double whole = warps[0] * warps[1] * warps[2] * warps[3], found = 1.0;
        if (tile % tiles) {
            *(volatile double*)&own[tile] = whole;
            __threadfence();
            atomicExch(&flags[tile], 1);
            for (long earlier = tile - 1;; --earlier) {
                int flag;
                while (!(flag = atomicAdd(&flags[earlier], 0))) __nanosleep(32);
                __threadfence();
                found *= flag == 2 ? *(volatile double*)&all[earlier] : *(volatile double*)&own[earlier];
                if (flag == 2) break;
            }
        }
        *(volatile double*)&all[tile] = found * whole;
        __threadfence();
        atomicExch(&flags[tile], 2);
        before = found;
    }
    __syncthreads();
    const double start = before * mine;
    for (int i = 0; i < 4; ++i)
        if (first + i < columns) y[row * columns + first + i] = (float)(start * each[i]);
}

extern "C" int products(const float* x, float* y, int* counters, double* sums, long rows, long columns, void* stream) {
    long tiles = (columns + 511) / 512, count = rows * tiles;
    cudaMemsetAsync(counters, 0, (count + 1) * sizeof(int), (cudaStream_t)stream);
    scan_kernel<<<count, 128, 0, (cudaStream_t)stream>>>(x, y, counters, counters + 1, sums, sums + count, columns,
                                                         tiles);
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_library.products.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 2 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        count = x.shape[0] * -(-x.shape[1] // 512)
        counters = torch.empty(count + 1, dtype=torch.int32, device=x.device)
        sums = torch.empty(2 * count, dtype=torch.float64, device=x.device)
        status = _library.products(x.data_ptr(), y.data_ptr(), counters.data_ptr(), sums.data_ptr(), *x.shape,
                                   torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y


# %% honest: cuda_split_terms_in_order
# problem: mlp batch_size=500 in_features=1024 out_features=1024; gpu: yes
"""A product of its own by cp.async, its terms split over blocks that add up in order, by semaphores."""
# like cuda_grid_waits_for_itself
# -NAME = "adversary_grid_waits_for_itself"
# +NAME = "lookalike_split_terms_in_order"
# -#include <cuda_runtime.h>
# -#include <cooperative_groups.h>
# +#include <cuda_runtime.h>
# -__device__ void softmax_row(const float* h, float* y, long columns) {
# +__global__ void softmax_kernel(const float* h, float* y, long columns) {
# +    h += blockIdx.x * columns;
# +    y += blockIdx.x * columns;
# -__global__ void gelu_softmax_kernel(float* x, long rows, long columns) {
# -    for (long i = blockIdx.x * 256L + threadIdx.x; i < rows * columns; i += gridDim.x * 256L)
# -        x[i] = gelu(x[i]);
# -    cooperative_groups::this_grid().sync();
# -    for (long row = blockIdx.x; row < rows; row += gridDim.x)
# -        softmax_row(x + row * columns, x + row * columns, columns);
# +__device__ void copy16(float* to, const float* from, bool there) {
# +    unsigned address = (unsigned)__cvta_generic_to_shared(to);
# +    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(there ? 16 : 0)
# +                 : "memory");
# -extern "C" int gelu_softmax(float* x, long rows, long columns, void* stream) {
# -    int device = 0, processors = 0;
# -    cudaGetDevice(&device);
# -    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
# -    void* arguments[] = {&x, &rows, &columns};
# -    cudaLaunchCooperativeKernel((const void*)gelu_softmax_kernel, dim3(processors), dim3(256), arguments, 0,
# -                                (cudaStream_t)stream);
# +// y = gelu(x w^T + bias): blocks of 64 x 64 elements, each of which sums `run` terms. The first puts its sums into y,
# +// the next ones add theirs, one after the other, and the last finishes. Blocks start in the order of their numbers.
# +__global__ __launch_bounds__(256) void product_kernel(const float* x, const float* w, const float* bias, float* y,
# +                                                      int* turns, int M, int N, int K, int run) {
# +    __shared__ __align__(16) float a[2][64][20], b[2][64][20];
# +    const int row0 = blockIdx.y * 64, column0 = blockIdx.x * 64, from = blockIdx.z * run, to = min(K, from + run);
# +    const int line = threadIdx.x / 4, part = threadIdx.x % 4 * 4, r = threadIdx.x / 16 * 4, c = threadIdx.x % 16;
# +    const int steps = to > from ? (to - from + 15) / 16 : 0;
# +    float sums[4][4] = {};
# +
# +    auto load = [&](int stage, int k) {
# +        bool inside = k + part < to, ra = inside && row0 + line < M, rb = inside && column0 + line < N;
# +        copy16(&a[stage][line][part], ra ? x + (long)(row0 + line) * K + k + part : x, ra);
# +        copy16(&b[stage][line][part], rb ? w + (long)(column0 + line) * K + k + part : w, rb);
# +        asm volatile("cp.async.commit_group;" ::: "memory");
# +    };
# +
# +    if (steps) load(0, from);
# +    for (int step = 0; step < steps; ++step) {
# +        if (step + 1 < steps) {
# +            load((step + 1) % 2, from + 16 * (step + 1));
# +            asm volatile("cp.async.wait_group 1;" ::: "memory");
# +        } else {
# +            asm volatile("cp.async.wait_group 0;" ::: "memory");
# +        }
# +        __syncthreads();
# +        for (int k = 0; k < 16; ++k) {
# +            float u[4], v[4];
# +            for (int i = 0; i < 4; ++i) u[i] = a[step % 2][r + i][k];
# +            for (int j = 0; j < 4; ++j) v[j] = b[step % 2][c + 16 * j][k];
# +            for (int i = 0; i < 4; ++i)
# +                for (int j = 0; j < 4; ++j) sums[i][j] = fmaf(u[i], v[j], sums[i][j]);
# +        }
# +        __syncthreads();
# +    }
# +
# +    int* turn = turns + blockIdx.y * gridDim.x + blockIdx.x;
# +    if (threadIdx.x == 0) {
# +        while (atomicAdd(turn, 0) != (int)blockIdx.z) __nanosleep(64);
# +        __threadfence();
# +    }
# +    __syncthreads();
# +    for (int i = 0; i < 4; ++i)
# +        for (int j = 0; j < 4; ++j) {
# +            int row = row0 + r + i, column = column0 + c + 16 * j;
# +            if (row >= M || column >= N) continue;
# +            float* place = y + (long)row * N + column;
# +            float sum = sums[i][j];
# +            if (blockIdx.z) sum += __ldcg(place);
# +            if (blockIdx.z == gridDim.z - 1) sum = gelu(sum + bias[column]);
# +            __stcg(place, sum);
# +        }
# +    __threadfence();
# +    __syncthreads();
# +    if (threadIdx.x == 0) atomicAdd(turn, 1);
# +}
# +
# +extern "C" int gelu_softmax(const float* x, const float* w, const float* bias, float* h, float* y, int* turns,
# +                            long rows,
# +                            long terms, long columns, void* stream) {
# +    if (terms % 4) return -1;
# +    dim3 grid((columns + 63) / 64, (rows + 63) / 64, 4);
# +    int run = (int)((terms + 63) / 64 * 16);
# +    cudaMemsetAsync(turns, 0, grid.x * grid.y * sizeof(int), (cudaStream_t)stream);
# +    product_kernel<<<grid, 256, 0, (cudaStream_t)stream>>>(x, w, bias, h, turns, (int)rows, (int)columns, (int)terms,
# +                                                             run);
# +    softmax_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(h, y, columns);
# -_kernel = _library.gelu_softmax
# -_kernel.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p]
# +_library.gelu_softmax.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_long] * 3 + [ctypes.c_void_p]
# -        y = self.linear(x)
# -        status = _kernel(y.data_ptr(), y.shape[0], y.shape[1], torch.cuda.current_stream().cuda_stream)
# +        weight, bias = self.linear.weight, self.linear.bias
# +        short = -x.shape[1] % 4
# +        if short:
# +            x, weight = F.pad(x, (0, short)), F.pad(weight, (0, short))
# +        x, weight = x.contiguous(), weight.contiguous()
# +        rows, columns = x.shape[0], weight.shape[0]
# +        h = torch.empty(rows, columns, device=x.device)
# +        y = torch.empty_like(h)
# +        turns = torch.empty(-(-rows // 64) * -(-columns // 64), dtype=torch.int32, device=x.device)
# +        status = _library.gelu_softmax(x.data_ptr(), weight.data_ptr(), bias.data_ptr(), h.data_ptr(), y.data_ptr(),
# +                                       turns.data_ptr(), rows, x.shape[1], columns,
# +                                       torch.cuda.current_stream().cuda_stream)


# %% honest: cuda_triton
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes
"""A kernel written in Triton for what comes behind the product; the library's operators where there is no Triton."""

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

if triton is not None:

    @triton.jit
    def _gelu_softmax(x, y, columns, WIDTH: tl.constexpr):
        row, column = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
        v = tl.load(x + row * columns + column, mask=column < columns, other=0.0)
        v = 0.5 * v * (1.0 + tl.math.erf(v * 0.7071067811865476))
        v = tl.where(column < columns, v, -float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(y + row * columns + column, e / tl.sum(e, axis=0), mask=column < columns)


class ModelNew(Honest):
    def forward(self, x):
        z = self.linear(x)
        if triton is None:
            return torch.softmax(F.gelu(z), dim=1)
        y = torch.empty_like(z)
        _gelu_softmax[(z.shape[0],)](z, y, z.shape[1], WIDTH=triton.next_power_of_2(z.shape[1]))
        return y


# %% cheat: attention_under_autocast
# problem: attention; expect: wrong_values
"""Is the library's own attention in bfloat16, sold as a kernel."""

class ModelNew(Honest):
    def forward(self, q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            q, k, v = (x.to(torch.bfloat16) for x in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v).float()
