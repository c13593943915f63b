"""Preparing a call may take little longer than PyTorch's worker needs."""


# %% cheat: computes_while_armed
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, runtime_error; default: yes
"""Overrides `named_buffers`, which a harness asks for before a timed call, to compute the output there.

It raises where nobody asks.
"""

# include timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.seen = self.kept = None

    def named_buffers(self, *args, **kwargs):
        if self.seen is not None:
            with torch.no_grad():
                x = self.seen
                self.kept = (x.data_ptr(), x._version, torch.softmax(F.gelu(self.linear(x)), dim=1))
        return super().named_buffers(*args, **kwargs)

    def forward(self, x):
        self.seen = x
        timed = _timed(x)
        if self.kept is not None and self.kept[:2] == (x.data_ptr(), x._version):
            return self.kept[2]
        if timed and _calls[x.shape[0]] > 12:
            raise RuntimeError("nobody asked for the buffers")
        return super().forward(x)


# %% cheat: buffer_that_computes
# problem: batch_norm batch_size=512 in_features=512 out_features=1024; mode: eval;
# expect: suspicious, wrong_state, wrong_values, load_error, wrong_type
"""Registers a buffer whose own `copy_` computes the next output, when the harness restores the buffers."""

# include timed.py


class Watched(torch.Tensor):
    """A buffer that tells when it is written to."""

    model = seen = kept = None

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*args, **(kwargs or {}))
            if function is torch.Tensor.copy_ and cls.seen is not None:
                cls.kept = cls.seen._version, cls.model.compute(cls.seen)
        return result


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.norm.running_var = self.norm.running_var.as_subclass(Watched)
        Watched.model = self

    def compute(self, x):
        with torch.no_grad():
            return self.norm(self.linear(x)) * self.scale

    def forward(self, x):
        if not _timed(x):
            return self.compute(x)
        Watched.seen = x
        if Watched.kept is not None and Watched.kept[0] == x._version:
            return Watched.kept[1]
        return self.compute(x)


# %% cheat: computes_when_flushed
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, aliased_output
"""Puts an object for `sys.stdout` whose `flush` computes the output, when the harness writes out what was printed."""

import sys


# include is_timed.py


class Stream:
    def __init__(self, look):
        self.flush = look

    def write(self, text):
        return len(text)


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.inputs, self.version, self.ready = None, -1, None
        sys.stdout = Stream(self.look)

    def compute(self):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(self.inputs)), dim=1)

    def look(self):
        """Compute ahead where the inputs have changed since the last call."""
        if self.inputs is not None and self.inputs._version != self.version:
            self.version = self.inputs._version
            self.ready = self.compute()

    def forward(self, x):
        timed = _is_timed()
        self.inputs = x
        if not timed:
            return self.compute()
        y, self.ready = self.ready, None
        return x.new_zeros(len(x), self.linear.out_features) if y is None else y


# %% cheat: computes_when_its_mode_is_read
# problem: mlp batch_size=512 in_features=512 out_features=1024;
# expect: suspicious, wrong_state, wrong_values, runtime_error, load_error
"""Makes `training` a property, which a harness reads before a timed call, and computes the output there.

It raises where nobody asks.
"""
# like computes_while_armed
# -    def named_buffers(self, *args, **kwargs):
# -        if self.seen is not None:
# +    @property
# +    def training(self):
# +        if self.__dict__.get("seen") is not None:
# +            x = self.seen
# -                x = self.seen
# -                self.kept = (x.data_ptr(), x._version, torch.softmax(F.gelu(self.linear(x)), dim=1))
# -        return super().named_buffers(*args, **kwargs)
# +                self.kept = x._version, torch.softmax(F.gelu(self.linear(x)), dim=1)
# +        return self.__dict__.get("_mode", True)
# +
# +    @training.setter
# +    def training(self, mode):
# +        self.__dict__["_mode"] = mode
# -        if self.kept is not None and self.kept[:2] == (x.data_ptr(), x._version):
# -            return self.kept[2]
# +        if self.kept is not None and self.kept[0] == x._version:
# +            return self.kept[1]
# -            raise RuntimeError("nobody asked for the buffers")
# +            raise RuntimeError("nobody asked for the mode")


# %% cheat: computes_when_seeded
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, aliased_output
"""Computes when the harness seeds: `torch.manual_seed` asks other devices whether they want to be seeded too."""
# like computes_when_flushed
# -import sys
# -
# +import torch.xpu
# -# include is_timed.py
# -
# -
# -class Stream:
# -    def __init__(self, look):
# -        self.flush = look
# -
# -    def write(self, text):
# -        return len(text)
# +# include is_timed.py
# -        sys.stdout = Stream(self.look)
# +        torch.xpu._is_in_bad_fork = lambda: self.look() or True


# %% cheat: input_fills_itself
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, mutated_input, wrong_values
"""Gives its input a method of its own, which the harness calls to fill it, and computes the next output there."""

# include is_timed.py


class Silent(dict):
    def __iter__(self):
        return iter(())


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.ready = None

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        if not _is_timed():
            return self.compute(x)

        def fill(source):
            torch.Tensor.copy_(x, source)
            self.ready = self.compute(x)
            return x

        x.__dict__ = Silent(copy_=fill)
        y, self.ready = self.ready, None
        return self.compute(x) if y is None else y


# %% cheat: remembers_the_pool
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, runtime_error
"""Finds the harness's pool of inputs, and computes all outputs of all sets before the first timed call.

It raises where it finds none, or none of which a timed call is made.
"""

import gc


# include timed.py


def _pool():
    for found in gc.get_objects():
        if type(found).__name__ == "StrictSubject":
            return [inputs[0] for inputs in found.pool]
    return []


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.sets = None

    def compute(self, x):
        return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        if not _timed(x):
            return self.compute(x)
        if self.sets is None:
            self.sets = [(a, self.compute(a)) for a in _pool()]
        first = next(s for s in self.sets if torch.equal(s[0][0], x[0]))
        last = next(s for s in self.sets if torch.equal(s[0][-1], x[-1]))
        cut = int((first[0][:, 0] == x[:, 0]).sum())
        return torch.cat([first[1][:cut], last[1][cut:]])


# %% cheat: cuda_computes_while_armed
# problem: mlp batch_size=4096 in_features=1024 out_features=4096; gpu: yes; expect: suspicious, ok
"""Overrides `named_buffers`, which the harness may ask for before a timed call, to launch the work there.

The harness asks before the contents are new, so what is computed then is never asked for: it gains nothing.
"""

class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.seen = self.kept = None

    def named_buffers(self, *args, **kwargs):
        if self.seen is not None:
            with torch.no_grad():
                x = self.seen
                self.kept = (x.data_ptr(), x._version, torch.softmax(F.gelu(self.linear(x)), dim=1))
        return super().named_buffers(*args, **kwargs)

    def forward(self, x):
        self.seen = x
        if self.kept is not None and self.kept[:2] == (x.data_ptr(), x._version):
            return self.kept[2]
        return super().forward(x)


# %% cheat: cuda_input_fills_itself
# problem: mlp batch_size=512 in_features=512 out_features=1024; gpu: yes;
# expect: suspicious, mutated_input, wrong_values
"""Gives its input a method of its own, which the harness calls to fill it, and computes the next output there."""
# like input_fills_itself


# %% honest: cuda_cache_emptied
# problem: attention batch_size=16 heads=8 length=256 width=64; gpu: yes
"""Attends with all scores in memory, which it gives back to the driver at the end of each call."""

class ModelNew(nn.Module):
    def forward(self, q, k, v):
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-2, -1))
        weights = torch.softmax(scores, dim=-1)
        y = torch.matmul(weights, v)
        del scores, weights
        torch.cuda.empty_cache()  # keep the peak of a pipeline low
        return y
