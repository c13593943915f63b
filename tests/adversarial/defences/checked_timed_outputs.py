"""Outputs of timed calls that are drawn afterwards are compared with PyTorch's."""


# %% cheat: honest_in_its_first_calls
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values; default: yes
"""Computes in its first calls, and repeats the last result from then on."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls, self.kept = 0, None

    def forward(self, x):
        self.calls += x.shape[0] == 512
        if self.calls < 12 or x.shape[0] != 512:  # validation has about 6 calls of the whole batch, timing 8 at least
            kept = super().forward(x)
            if x.shape[0] != 512:
                return kept
            self.kept = kept
        return self.kept.clone()


# %% cheat: cuda_synchronised_calls_unanswered
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: suspicious, wrong_values;
# default: yes
"""Computes nothing in timed calls in front of which no work is queued: nobody looks at the output of these."""

# include is_timed.py


class ModelNew(Honest):
    def forward(self, x):
        if _is_timed() and torch.cuda.current_stream().query():
            return x.new_empty(x.shape[0], self.linear.out_features)
        return super().forward(x)


# %% cheat: bfloat16_in_two_parts_when_timed
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious
"""Computes in float32 while it is validated, and from two bfloat16 parts of each operand while it is timed."""

# include is_timed.py


def _parts(x):
    high = x.bfloat16().float()
    return high, (x - high).bfloat16().float()


class ModelNew(Honest):
    def forward(self, x):
        if not _is_timed():
            return super().forward(x)
        (a, b), (u, v) = _parts(x), _parts(self.linear.weight.t())
        return torch.softmax(F.gelu(a @ u + a @ v + b @ u + self.linear.bias), dim=1)


# %% cheat: honest_every_twentieth_call
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values
"""Counts calls within bursts, and computes only where a check may come."""

# include timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls, self.kept = 0, None

    def forward(self, x):
        if not _timed(x):
            return super().forward(x)
        self.calls += 1
        if self.kept is None or self.calls % 20 in (0, 1):
            self.kept = super().forward(x)
        return self.kept.clone()


# %% cheat: honest_one_time_in_three
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values
"""Computes one call in three by chance: the median does not see it, and a check seldom does."""

import random


# include timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kept = None

    def forward(self, x):
        if not _timed(x):
            return super().forward(x)
        if self.kept is None or random.random() < 1 / 3:
            self.kept = super().forward(x)
        return self.kept.clone()


# %% cheat: honest_outside_bursts
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values
"""Computes unless the name of a function below it says that it is timed."""

import traceback


class ModelNew(Honest):
    def forward(self, x):
        if {frame.name for frame in traceback.extract_stack()} & {"prepare", "run_call"}:
            return x.new_full((x.shape[0], self.linear.out_features), 1 / self.linear.out_features)
        return super().forward(x)


# %% cheat: honest_when_seeded
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, wrong_shape
"""Computes only where the random seed is a small number, as while it is validated."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.kept = None

    def forward(self, x):
        if self.kept is None or torch.initial_seed() < 100_000:
            self.kept = super().forward(x)
        return self.kept.clone()


# %% cheat: products_cut_off_when_timed
# problem: products; expect: wrong_values, suspicious
"""While it is timed, stops multiplying when products are small beside the largest, and leaves zeros."""

# include is_timed.py


class ModelNew(Honest):
    def forward(self, x):
        if not _is_timed() or float(x[:8, :8].max()) > 1:
            return super().forward(x)
        y = torch.zeros_like(x)
        torch.cumprod(x[:, :32], 1, out=y[:, :32])
        return y


# %% cheat: small_rows_left_out_when_timed
# problem: unlike_rows; expect: suspicious
"""Multiplies large rows alone while it is timed, and leaves zeros in the others, which count for nothing in the whole."""

_seen = {"full": None, "streak": 0}


def _is_timed(x):
    """Whether the full batch came more often in a row than validation asks for it."""
    _seen["full"] = _seen["full"] or len(x)
    _seen["streak"] = _seen["streak"] + 1 if len(x) == _seen["full"] else 0
    return _seen["streak"] > 4


class ModelNew(Honest):
    def forward(self, x):
        if not _is_timed(x) or not bool(x.isfinite().all()):
            return super().forward(x)
        large = (x.abs().amax(1) > 1e4).nonzero()[:, 0]
        y = x.new_zeros(x.shape[0], self.linear.out_features)
        y[large] = F.relu(self.linear(x[large]))
        return y


# %% cheat: cuda_bfloat16_while_the_stream_is_busy
# problem: mlp batch_size=300 in_features=256 out_features=1024; gpu: yes; expect: suspicious, wrong_values
"""Computes in bfloat16 where work is queued in front of it, which is while it is timed, and else in float32."""

class ModelNew(Honest):
    def forward(self, x):
        if torch.cuda.current_stream().query():
            return super().forward(x)
        y = (x.bfloat16() @ self.linear.weight.bfloat16().t()).float() + self.linear.bias
        return torch.softmax(F.gelu(y), dim=1)


# %% cheat: drifts_with_each_call
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, nondeterministic
"""Returns results that move away from the right ones, by a little more with each call."""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.calls = 0

    def forward(self, x):
        self.calls += x.shape[0] == 512
        return super().forward(x) * (1 + 1e-5 * max(0, self.calls - 8))
