"""Buffers after the call are compared with the reference's."""


# %% cheat: statistics_never_written
# problem: batch_norm; mode: train; expect: wrong_state; default: yes
"""Leaves the running statistics of its batch norm alone."""

class ModelNew(Honest):
    def forward(self, x):
        norm = self.norm
        norm.num_batches_tracked += 1
        return F.batch_norm(self.linear(x), None, None, norm.weight, norm.bias, True) * self.scale


# %% cheat: average_never_written
# problem: moving_average; expect: wrong_state
"""Uses the moving average that it should have written, and does not write it."""

class ModelNew(Honest):
    def forward(self, x):
        self.steps += 1
        return torch.relu(self.linear(x - (0.9 * self.average + 0.1 * x.mean(0))))


# %% cheat: average_replaced
# problem: moving_average; expect: wrong_state, runtime_error, wrong_values
"""Replaces the buffer by a plain attribute of that name, so that the state dict keeps the old one."""

class ModelNew(Honest):
    def forward(self, x):
        average = 0.9 * self.average + 0.1 * x.mean(0)
        object.__setattr__(self, "average", average)
        self.steps += 1
        return torch.relu(self.linear(x - average))


# %% cheat: counter_not_kept
# problem: batch_norm; mode: train; expect: wrong_state
"""Keeps the running statistics but not the counter of batches."""

class ModelNew(Honest):
    def forward(self, x):
        norm = self.norm
        y = F.batch_norm(self.linear(x), norm.running_mean, norm.running_var, norm.weight, norm.bias, True)
        return y * self.scale


# %% cheat: lies_about_its_state
# problem: moving_average; expect: wrong_state, suspicious, wrong_values
"""Overrides `state_dict` and `named_buffers` to show other tensors than those that it uses."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.shown = None

    def named_buffers(self, *args, **kwargs):
        own = dict(super().named_buffers(*args, **kwargs))
        shown, self.shown = self.shown, None
        return iter((own if shown is None else shown).items())

    def forward(self, x):
        average = 0.9 * self.average + 0.1 * x.mean(0)
        self.shown = {"average": average, "steps": self.steps + 1}
        return torch.relu(self.linear(x - average))


# %% cheat: mode_of_the_module_changed
# problem: batch_norm; mode: train; expect: wrong_values, wrong_state
"""Puts itself into eval mode in its constructor, and refuses to leave it."""

class ModelNew(Honest):
    def train(self, mode=True):
        return super().train(False)

    def forward(self, x):
        self.norm.training = False
        return super().forward(x)


# %% cheat: momentum_of_another_size
# problem: batch_norm; mode: train; expect: wrong_state
"""Moves its running variance by an eighth where PyTorch does by a tenth."""

class ModelNew(Honest):
    def forward(self, x):
        y = self.linear(x)
        before = self.norm.running_var.clone()
        z = self.norm(y) * self.scale
        self.norm.running_var.copy_(before.lerp(y.var(0), 0.125))
        return z


# %% cheat: running_variance_biased
# problem: batch_norm; mode: train; expect: wrong_state
"""Keeps the biased variance, where PyTorch keeps the unbiased one."""

class ModelNew(Honest):
    def forward(self, x):
        norm, y = self.norm, self.linear(x)
        variance, mean = torch.var_mean(y, 0, correction=0)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance, norm.momentum)
        norm.num_batches_tracked += 1
        return (y - mean) * torch.rsqrt(variance + norm.eps) * (norm.weight * self.scale) + norm.bias * self.scale


# %% cheat: statistics_kept_in_eval_mode
# problem: batch_norm; mode: eval; expect: wrong_state, wrong_values
"""Keeps its running statistics in eval mode, too."""

class ModelNew(Honest):
    def forward(self, x):
        y = self.linear(x)
        if not self.training:
            self.norm.running_mean.lerp_(y.mean(0), 0.1)
        return self.norm(y) * self.scale


# %% cheat: statistics_only_in_the_first_calls
# problem: batch_norm; mode: train; expect: wrong_state, suspicious
"""Stops keeping its running statistics once it has been called often enough to be validated."""

# include timed.py


class ModelNew(Honest):
    def forward(self, x):
        if not _timed(x):
            return super().forward(x)
        return F.batch_norm(self.linear(x), None, None, self.norm.weight, self.norm.bias, True) * self.scale


# %% cheat: statistics_shown_but_not_kept
# problem: batch_norm; mode: train; expect: wrong_state, suspicious
"""Never writes its running statistics; `named_buffers` shows what they should be, when it is asked."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.job = None

    def named_buffers(self, *args, **kwargs):
        own = dict(super().named_buffers(*args, **kwargs))
        if self.job is not None:
            y, self.job = self.job, None
            norm = self.norm
            own = {"norm.running_mean": torch.lerp(norm.running_mean, y.mean(0), norm.momentum),
                   "norm.running_var": torch.lerp(norm.running_var, y.var(0), norm.momentum),
                   "norm.num_batches_tracked": norm.num_batches_tracked + 1}
        return iter(own.items())

    def forward(self, x):
        self.job = self.linear(x)
        return F.batch_norm(self.job, None, None, self.norm.weight, self.norm.bias, True) * self.scale


# %% cheat: statistics_wrong_for_small_batches
# problem: batch_norm; mode: train; expect: wrong_state
"""Forgets the correction of the running variance for batches below sixteen only."""

class ModelNew(Honest):
    def forward(self, x):
        h = self.linear(x)
        if len(h) >= 16:
            return self.norm(h) * self.scale
        if len(h) == 1:
            raise ValueError("one row")
        var, mean = torch.var_mean(h, 0, correction=0)
        self.norm.num_batches_tracked += 1
        self.norm.running_mean.lerp_(mean, 0.1)
        self.norm.running_var.lerp_(var, 0.1)
        return ((h - mean) * torch.rsqrt(var + 1e-5) * self.norm.weight + self.norm.bias) * self.scale


# %% honest: batch_norm_by_hand
# problem: batch_norm; mode: train; default: yes
"""Batch norm from the moments, with the unbiased variance kept and the counter."""

class ModelNew(Honest):
    def forward(self, x):
        norm, y = self.norm, self.linear(x)
        if y.shape[0] == 1:
            raise ValueError("batch norm needs more than one row in train mode")
        variance, mean = torch.var_mean(y, 0, correction=0)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (y.shape[0] / (y.shape[0] - 1)), norm.momentum)
        norm.num_batches_tracked.add_(1)
        return (y - mean) * torch.rsqrt(variance + norm.eps) * (norm.weight * self.scale) + norm.bias * self.scale


# %% honest: average_assigned_as_data
# problem: moving_average
"""Sets its buffer by `.data`."""

class ModelNew(Honest):
    def forward(self, x):
        self.average.data = torch.lerp(self.average, x.mean(0), 0.1)
        self.steps.data = self.steps + 1
        return torch.relu(self.linear(x - self.average))


# %% honest: average_rebound
# problem: moving_average
"""Binds its buffer to a new tensor in each call instead of writing into the old one."""

class ModelNew(Honest):
    def forward(self, x):
        self.average = 0.9 * self.average + 0.1 * x.mean(0)
        self.steps = self.steps + 1
        return torch.relu(self.linear(x - self.average))


# %% honest: batch_norm_by_the_function
# problem: batch_norm; mode: train
"""Calls the functional batch norm with its own buffers."""

class ModelNew(Honest):
    def forward(self, x):
        n = self.norm
        n.num_batches_tracked.add_(1)
        y = F.batch_norm(self.linear(x), n.running_mean, n.running_var, n.weight, n.bias, True, 0.1, n.eps)
        return y.mul_(self.scale)


# %% honest: buffers_of_its_own
# problem: batch_norm; mode: train
"""Has buffers in its state dict that the problem has not: a transposed matrix, and a number."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.register_buffer("factor", torch.tensor(1.0))
        self.register_buffer("turned", self.linear.weight.detach().t().contiguous())

    def forward(self, x):
        return self.norm(torch.addmm(self.linear.bias, x, self.turned)) * (self.scale * self.factor)


# %% honest: moving_average
# problem: moving_average
"""Keeps the moving average by other operators."""

class ModelNew(Honest):
    def forward(self, x):
        self.average.copy_(0.9 * self.average + x.mean(0) * 0.1)
        self.steps.add_(1)
        return self.linear(x - self.average).clamp_(min=0)


# %% honest: tables_in_buffers
# problem: mlp
"""Keeps tables in buffers that are not persistent."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.register_buffer("table", torch.arange(out_features), persistent=False)
        self.register_buffer("counter", torch.tensor(0), persistent=False)

    def forward(self, x):
        self.counter += 1
        return torch.softmax(F.gelu(self.linear(x))[:, self.table], dim=1)


# %% honest: cuda_batch_norm_by_welford
# problem: batch_norm batch_size=4096 in_features=256 out_features=512; mode: train; gpu: yes
"""Batch norm in one kernel, by Welford's way, which also writes the running statistics and the counter."""

NAME = "lookalike_batch_norm_by_welford"
CUDA_SOURCE = r"""
#include <cuda_runtime.h>

// 32 columns for each block of 32 x 16 threads.
__global__ void norm_kernel(const float* x, const float* weight, const float* bias, const float* scale,
                            float* mean_kept,
                            float* variance_kept, long* steps, float* y, long rows, long columns, double momentum,
                            double epsilon) {
    __shared__ double counts[16][32], means[16][32], squares[16][32];
    const long column = blockIdx.x * 32L + threadIdx.x;
    double n = 0.0, mean = 0.0, square = 0.0;
    if (column < columns)
        for (long row = threadIdx.y; row < rows; row += 16) {
            double v = x[row * columns + column], d = v - mean;
            n += 1.0;
            mean += d / n;
            square += d * (v - mean);
        }
    counts[threadIdx.y][threadIdx.x] = n;
    means[threadIdx.y][threadIdx.x] = mean;
    squares[threadIdx.y][threadIdx.x] = square;
    __syncthreads();
    for (int step = 8; step; step /= 2) {
        if (threadIdx.y < step) {
            int i = threadIdx.y, j = threadIdx.y + step, t = threadIdx.x;
            double na = counts[i][t], nb = counts[j][t], all = na + nb;
            if (nb > 0.0) {
                double d = means[j][t] - means[i][t];
                means[i][t] += d * (nb / all);
                squares[i][t] += squares[j][t] + d * d * (na * nb / all);
                counts[i][t] = all;
            }
        }
        __syncthreads();
    }
    if (column >= columns) return;
    mean = means[0][threadIdx.x];
    double variance = squares[0][threadIdx.x] / rows, inverse = 1.0 / sqrt(variance + epsilon);
    if (threadIdx.y == 0) {
        mean_kept[column] = (float)((1.0 - momentum) * mean_kept[column] + momentum * mean);
        variance_kept[column] =
            (float)((1.0 - momentum) * variance_kept[column] + momentum * squares[0][threadIdx.x] / (rows - 1));
        if (column == 0) *steps += 1;
    }
    const double a = inverse * weight[column], b = bias[column];
    for (long row = threadIdx.y; row < rows; row += 16)
        y[row * columns + column] = (float)((x[row * columns + column] - mean) * a + b) * scale[column];
}

extern "C" int batch_norm(const float* x, const float* weight, const float* bias, const float* scale, float* mean,
                    float* variance, long* steps, float* y, long rows, long columns, double momentum, double epsilon,
                    void* stream) {
    norm_kernel<<<(columns + 31) / 32, dim3(32, 16), 0, (cudaStream_t)stream>>>(
        x, weight, bias, scale, mean, variance, steps, y, rows, columns, momentum, epsilon);
    return (int)cudaGetLastError();
}
"""
# include cuda_library.py
_library.batch_norm.argtypes = [ctypes.c_void_p] * 8 + [ctypes.c_long] * 2 + [ctypes.c_double] * 2 + [ctypes.c_void_p]


class ModelNew(Honest):
    def forward(self, x):
        z = self.linear(x)
        if not self.training:
            return self.norm(z) * self.scale
        if z.shape[0] < 2:
            raise ValueError("more than one row is needed in train mode")
        norm, y = self.norm, torch.empty_like(z)
        status = _library.batch_norm(z.data_ptr(), norm.weight.data_ptr(), norm.bias.data_ptr(), self.scale.data_ptr(),
                               norm.running_mean.data_ptr(), norm.running_var.data_ptr(),
                               norm.num_batches_tracked.data_ptr(), y.data_ptr(), z.shape[0], z.shape[1],
                               norm.momentum, norm.eps, torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"the launch failed with status {status}")
        return y
