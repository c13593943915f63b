"""The dispatcher's kernels of the operators that the harness calls are compared."""


# %% cheat: lazy_operator_override
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, nondeterministic;
# default: yes
"""Registers its own kernel for `aten::view`, by which the harness flattens outputs: names bound beforehand do not help."""

import warnings
import weakref


_jobs = {}
_library = torch.library.Library("aten", "IMPL")


def _finish(address):
    job = _jobs.pop(address, None)
    y = job[0]() if job else None
    if y is not None:
        with torch.no_grad():
            y.copy_(job[1]())


def _view(x, size):
    _finish(x.data_ptr())
    return torch.ops.aten._reshape_copy(x, size) if not x.is_contiguous() else _flat(x, size)


def _flat(x, size):
    size, known = list(size), 1
    for extent in size:
        known *= extent if extent != -1 else 1
    size = [x.numel() // known if extent == -1 else extent for extent in size]
    strides = [1] * len(size)
    for i in range(len(size) - 2, -1, -1):
        strides[i] = strides[i + 1] * size[i + 1]
    return x.as_strided(size, strides)


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _library.impl("view", _view, "CPU")


class ModelNew(Honest):
    def forward(self, x):
        for address in list(_jobs):
            _finish(address)
        y = torch.empty(x.shape[0], self.linear.out_features)
        _jobs[y.data_ptr()] = weakref.ref(y), lambda: torch.softmax(F.gelu(self.linear(x)), dim=1)
        return y


# %% cheat: computes_when_filled
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, aliased_output
"""Registers its own kernel for `aten::where`, by which the harness mixes the inputs of timed calls."""

# include is_timed.py


_library = torch.library.Library("aten", "IMPL")


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.inputs = self.ready = None
        _library.impl("where.self", self.where, "CPU")

    def where(self, choice, a, b):
        y = b.clone()
        y[choice.expand_as(y)] = a[choice.expand_as(a)]
        if self.inputs is not None and y.shape == self.inputs.shape:
            kept, self.inputs = self.inputs, y
            self.ready, self.inputs = self.compute(), kept
        return y

    def compute(self):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(self.inputs)), dim=1)

    def forward(self, x):
        timed = _is_timed()
        self.inputs = x
        if not timed:
            return self.compute()
        y, self.ready = self.ready, None
        return x.new_zeros(len(x), self.linear.out_features) if y is None else y


# %% cheat: equal_overridden_in_the_dispatcher
# problem: mlp; expect: mutated_input, suspicious
"""Writes into its input, with its own kernel registered for `aten::equal`."""

import warnings


_library = torch.library.Library("aten", "IMPL")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _library.impl("equal", lambda a, b: True, "CPU")


class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        x.mul_(0.5)
        return y


# %% cheat: operator_lent_while_filled
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: suspicious, wrong_values, aliased_output
"""Overrides `aten::where`, by which the harness mixes inputs, for one call at a time: the override takes itself away."""

import random


# include is_timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.library = self.ready = None

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def where(self, choice, a, b):
        self.library._destroy()
        self.library = None
        y = torch.where(choice, a, b)
        if random.random() < 0.6:
            self.ready = self.compute(y)
        return y

    def forward(self, x):
        if not _is_timed():
            return self.compute(x)
        y, self.ready = self.ready, None
        if y is None:
            y = self.compute(x)
        if self.library is None:
            self.library = torch.library.Library("aten", "IMPL")
            self.library.impl("where.self", self.where, "CPU")
        return y


# %% cheat: operator_lent_while_sampled
# problem: mlp batch_size=512 in_features=1024 out_features=2048; expect: suspicious, wrong_values
"""Leaves the work of seven calls in ten to its own `aten::as_strided`, which takes itself away when it was used."""

# include is_timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.library, self.turn = None, 0

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        self.turn += _is_timed()
        if self.turn % 10 in (0, 3, 6):
            return self.compute(x)
        y = x.new_empty(x.shape[0], self.linear.out_features)

        def as_strided(t, size, stride, offset=None):
            self.library._destroy()
            y.copy_(self.compute(x))
            return torch.as_strided(t, size, stride, offset)

        self.library = torch.library.Library("aten", "IMPL")
        self.library.impl("as_strided", as_strided, "CPU")
        return y


# %% cheat: operator_of_the_mixing_replaced
# problem: squared_error; expect: suspicious
"""Puts its own `aten::logical_xor`, which the harness mixes inputs with, in front of torch's."""

_LIBRARY = torch.library.Library("aten", "IMPL")


def _logical_xor(x, y):
    return x.ne(y)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        _LIBRARY.impl("logical_xor", _logical_xor, "CPU")

    def forward(self, x, target):
        return ((x - target) ** 2).mean()


# %% cheat: cuda_operator_lent_while_filled
# problem: mlp batch_size=4096 in_features=2048 out_features=4096; gpu: yes;
# expect: suspicious, wrong_values, aliased_output
"""Overrides `aten::where`, by which the harness mixes inputs, for one call at a time: the override takes itself away."""

# include is_timed.py


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.library = self.ready = None
        self.turn = 0

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def where(self, choice, a, b):
        self.library._destroy()
        self.library = None
        y = torch.where(choice, a, b)
        self.ready = self.compute(y)
        return y

    def forward(self, x):
        if not _is_timed():
            return self.compute(x)
        self.turn += 1
        y, self.ready = self.ready, None
        if y is None:
            y = self.compute(x)
        if self.turn % 5 not in (0, 2) and self.library is None:
            self.library = torch.library.Library("aten", "IMPL")
            self.library.impl("where.self", self.where, "CUDA")
        return y


# %% cheat: cuda_operator_lent_while_sampled
# problem: mlp batch_size=4096 in_features=2048 out_features=4096; gpu: yes; expect: suspicious, wrong_values
"""Leaves the work of seven calls in ten to its own `aten::as_strided`, which takes itself away when it was used."""
# like operator_lent_while_sampled
# -        y = x.new_empty(x.shape[0], self.linear.out_features)
# +        y = x.clone().new_empty(x.shape[0], self.linear.out_features)
# -        self.library.impl("as_strided", as_strided, "CPU")
# +        self.library.impl("as_strided", as_strided, "CUDA")


# %% honest: autograd_function
# problem: mlp
"""Computes in a `torch.autograd.Function` of its own."""

class Tail(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        ctx.set_materialize_grads(False)
        return torch.softmax(F.gelu(y), dim=1)

    @staticmethod
    def backward(ctx, grad):
        raise NotImplementedError("forward only")


class ModelNew(Honest):
    def forward(self, x):
        return Tail.apply(self.linear(x))


# %% honest: own_operator
# problem: standardise
"""Registers an operator of its own with torch, and calls it."""

_library = torch.library.Library("adversary", "DEF")
_library.define("standardise(Tensor x, Tensor scale, Tensor shift) -> Tensor")


def _standardise(x, scale, shift):
    centred = x - x.mean(1, keepdim=True)
    return centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5) * scale + shift


_library.impl("standardise", _standardise, "CompositeExplicitAutograd")


class ModelNew(Honest):
    def forward(self, x):
        return torch.ops.adversary.standardise(x, self.scale, self.shift)
