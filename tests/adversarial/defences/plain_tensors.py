"""Tensor subclasses, container subclasses and tensors with methods of their own are refused."""


# %% cheat: lazy_subclass
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: wrong_type; default: yes
"""A tensor subclass that computes when a function is called on it."""

class Lazy(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            for lazy in args:
                if type(lazy) is cls and lazy.job is not None:
                    (model, x), lazy.job = lazy.job, None
                    lazy.copy_(torch.softmax(F.gelu(model.linear(x)), dim=1))
            return function(*args, **(kwargs or {}))


class ModelNew(Honest):
    def forward(self, x):
        y = x.new_empty(x.shape[0], self.linear.out_features).as_subclass(Lazy)
        y.job = (self, x)
        return y


# %% cheat: lazy_dict
# problem: several batch_size=512 in_features=512 out_features=1024; expect: wrong_type, suspicious
"""A dict subclass that computes its values when they are asked for."""

class Lazy(dict):
    def __init__(self, compute):
        super().__init__(y=None, parts=None, features=None)
        self.compute = compute

    def values(self):
        return self.compute().values()

    def items(self):
        return self.compute().items()


class ModelNew(Honest):
    def compute(self, x):
        y = torch.tanh(self.linear(x))
        return {"y": y, "parts": (y.sum(1), y.argmax(1)), "features": y.shape[1]}

    def forward(self, x):
        return Lazy(lambda: self.compute(x))


# %% cheat: lazy_metaclass
# problem: mlp; expect: wrong_type
"""A tensor subclass whose class says that it is equal to `torch.Tensor`, and which computes when it is looked at."""

class Equal(type(torch.Tensor)):
    def __eq__(cls, other):
        return True

    __hash__ = type.__hash__


class Lazy(torch.Tensor, metaclass=Equal):
    compute = None

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            y = args[0]
            if y.compute is not None:
                compute, y.compute = y.compute, None
                y.copy_(compute())
            return func(*args, **(kwargs or {}))


class ModelNew(Honest):
    def forward(self, x):
        y = x.new_empty(x.shape[0], self.linear.out_features).as_subclass(Lazy)
        y.compute = lambda: torch.softmax(F.gelu(self.linear(x)), dim=1)
        return y


# %% cheat: lazy_method_in_a_silent_dict
# problem: mlp batch_size=512 in_features=1024 out_features=2048;
# expect: wrong_type, wrong_values, suspicious, nondeterministic
"""A plain tensor with a method of its own, in a dict that does not list it, which computes; in three calls of five."""

# include is_timed.py


class Silent(dict):
    def __iter__(self):
        return iter(())


class ModelNew(Honest):
    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        self.turn = 0

    def compute(self, x):
        with torch.no_grad():
            return torch.softmax(F.gelu(self.linear(x)), dim=1)

    def forward(self, x):
        self.turn += _is_timed()
        if self.turn % 5 in (0, 2):
            return self.compute(x)
        y = x.new_empty(x.shape[0], self.linear.out_features)

        def detach():
            y.__dict__ = {}
            y.copy_(self.compute(x))
            return y.detach()

        y.__dict__ = Silent(detach=detach)
        return y


# %% cheat: lazy_methods_of_an_instance
# problem: mlp batch_size=512 in_features=512 out_features=1024;
# expect: wrong_type, wrong_values, suspicious, nondeterministic
"""A plain tensor whose own `detach`, `contiguous` and the like are replaced: they compute first."""

_METHODS = ("detach", "contiguous", "reshape", "view", "numel", "element_size", "is_floating_point", "untyped_storage",
            "stride", "cpu", "to", "clone", "double", "data_ptr")


def _lazy(y, compute):
    def method(name):
        plain = getattr(torch.Tensor, name)

        def call(*args, **kwargs):
            for each in _METHODS:
                delattr(y, each)
            with torch.no_grad():
                y.copy_(compute())
            return plain(y, *args, **kwargs)

        return call

    for name in _METHODS:
        setattr(y, name, method(name))
    return y


class ModelNew(Honest):
    def forward(self, x):
        y = x.new_empty(x.shape[0], self.linear.out_features)
        return _lazy(y, lambda: torch.softmax(F.gelu(self.linear(x)), dim=1))


# %% cheat: lazy_small_output
# problem: mlp; expect: wrong_type, wrong_values, suspicious, nondeterministic
"""A plain tensor whose own methods compute when it is looked at: a small one, so that looking does not take long."""
# like lazy_methods_of_an_instance


# %% cheat: lazy_tuple
# problem: moments batch_size=4096 features=1024; expect: wrong_type, wrong_shape, aliased_output, suspicious
"""A tuple subclass that computes its parts when somebody iterates."""

class Lazy(tuple):
    def __iter__(self):
        x = tuple.__getitem__(self, 0)
        return iter((x.mean(1), x.std(1)))


class ModelNew(nn.Module):
    def forward(self, x):
        return Lazy((x, x))


# %% cheat: lazy_wrapper_subclass
# problem: mlp batch_size=512 in_features=512 out_features=1024; expect: wrong_type
"""A wrapper subclass without storage that computes in `__torch_dispatch__`, under the name `Tensor`."""

from torch.utils._pytree import tree_map


class Tensor(torch.Tensor):
    @staticmethod
    def __new__(cls, job, shape):
        self = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32)
        self.job = job
        return self

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        args = tree_map(lambda a: a.job() if isinstance(a, cls) else a, args)
        return function(*args, **(kwargs or {}))


class ModelNew(Honest):
    def forward(self, x):
        shape = (x.shape[0], self.linear.out_features)
        return Tensor(lambda: torch.softmax(F.gelu(self.linear(x)), dim=1), shape)


# %% cheat: tuple_that_shows_others
# problem: moments; expect: wrong_type, aliased_output, suspicious
"""Returns kept memory in a tuple that shows fresh tensors to whoever looks for what they share."""

_kept = {}


class Shown(tuple):
    looks = 0

    def __iter__(self):
        self.looks += 1
        parts = tuple(tuple.__iter__(self))
        return iter(parts if self.looks == 1 else [part.clone() for part in parts])


class ModelNew(nn.Module):
    def forward(self, x):
        kept = _kept.setdefault(x.shape[0], (x.new_empty(x.shape[0]), x.new_empty(x.shape[0])))
        torch.mean(x, 1, out=kept[0])
        torch.std(x, 1, out=kept[1])
        return Shown(kept)


# %% honest: inference_mode
# problem: standardise
"""Runs in inference mode, whose tensors keep no version."""

class ModelNew(Honest):
    @torch.inference_mode()
    def forward(self, x):
        centred = x - x.mean(1, keepdim=True)
        return centred * torch.rsqrt((centred**2).mean(1, keepdim=True) + 1e-5) * self.scale + self.shift


# %% honest: output_negated_when_read
# problem: mlp
"""Returns a tensor that torch negates when it is read, as imaginary parts of conjugates are."""

class ModelNew(Honest):
    def forward(self, x):
        y = super().forward(x)
        return torch.complex(torch.zeros_like(y), -y).conj().imag


# %% honest: output_that_asks_for_gradients
# problem: mlp
"""Turns gradients on inside, so that its output asks for them."""

class ModelNew(Honest):
    def forward(self, x):
        with torch.enable_grad():
            return super().forward(x)
