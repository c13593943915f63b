"""Modules of kinds that export refuses, or that a recording could get wrong, each with a call."""

from __future__ import annotations

import collections
import dataclasses
import random
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

Call = tuple[tuple[Any, ...], dict[str, Any]]
Kind = Callable[[], tuple[nn.Module, Call]]
KINDS: dict[str, Kind] = {}


def kind(make: Callable[[], tuple[Any, ...]]) -> Callable[[], Any]:
    """Register a kind: a function that returns a module and the arguments of forward; a dict behind them goes by name."""

    def made() -> tuple[nn.Module, Call]:
        torch.manual_seed(0)
        module, *args = make()
        kwargs = args.pop() if args and isinstance(args[-1], _Named) else {}
        return module, (tuple(args), dict(kwargs))

    KINDS[make.__name__] = made
    return made


class _Named(dict):  # type: ignore[type-arg]
    pass


class Of(nn.Module):
    """A module of a function of itself and the arguments, with a linear layer."""

    def __init__(self, function: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.function = function
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


def x(*shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (4, 6)))


@kind
def branch_on_values() -> Any:
    return Of(lambda m, x: m.linear(x) if x.sum() > 0 else m.linear(-x)), x()


@kind
def branch_on_a_number() -> Any:
    return Of(lambda m, x, n: m.linear(x) * n if n > 2 else x, ), x(), 3


@kind
def loop_until_a_value() -> Any:
    def run(m: Of, x: torch.Tensor) -> torch.Tensor:
        while float(x.detach().norm()) > 1:
            x = m.linear(x) * 0.1
        return x

    return Of(run), x()


@kind
def hook_of_a_submodule() -> Any:
    module = Of(lambda m, x: m.linear(x))
    module.linear.register_forward_hook(lambda m, i, o: o * 2)
    return module, x()


@kind
def hook_before_the_module() -> Any:
    module = Of(lambda m, x: m.linear(x))
    module.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    return module, x()


class _Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * 3


@kind
def custom_autograd_function() -> Any:
    return Of(lambda m, x: _Clip.apply(m.linear(x))), x()


@kind
def cache_in_an_attribute() -> Any:
    def run(m: Of, x: torch.Tensor) -> torch.Tensor:
        m.seen = x if m.seen is None else m.seen + x
        return m.linear(m.seen)

    return Of(run, seen=None), x()


@kind
def cache_in_a_dict() -> Any:
    def run(m: Of, x: torch.Tensor) -> torch.Tensor:
        m.cache["n"] = m.cache.get("n", 0) + 1
        return m.linear(x) * m.cache["n"]

    return Of(run, cache={}), x()


@kind
def counts_its_calls() -> Any:
    def run(m: Of, x: torch.Tensor) -> torch.Tensor:
        m.calls += 1
        return m.linear(x) / m.calls

    return Of(run, calls=0), x()


@kind
def weight_norm() -> Any:
    return parametrizations.weight_norm(nn.Linear(6, 6)), x()


@kind
def spectral_norm_in_training() -> Any:
    return parametrizations.spectral_norm(nn.Linear(6, 6)), x()


@kind
def own_parametrization() -> Any:
    class Symmetric(nn.Module):
        def forward(self, w: torch.Tensor) -> torch.Tensor:
            return w.triu() + w.triu(1).mT

    module = nn.Linear(6, 6)
    parametrize.register_parametrization(module, "weight", Symmetric())
    return module, x()


@kind
def tied_weights() -> Any:
    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6))
    module[2].weight = module[0].weight
    return module, x()


@kind
def sparse_embedding() -> Any:
    return nn.Embedding(20, 6, sparse=True), torch.randint(0, 20, (4, 3))


@kind
def complex_parameters() -> Any:
    module = Of(lambda m, x: torch.view_as_real(torch.complex(x, x) * m.phase).sum(-1))
    module.phase = nn.Parameter(torch.randn(6, dtype=torch.complex64))
    return module, x()


class Unit(torch.Tensor):
    """A tensor that follows each function of torch."""

    seen = 0

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Unit.seen += 1
        return super().__torch_function__(func, types, args, kwargs or {})


@kind
def tensor_subclass_as_input() -> Any:
    return nn.Linear(6, 6), x().as_subclass(Unit)


@kind
def tensor_subclass_as_buffer() -> Any:
    module = Of(lambda m, x: (m.linear(x) * m.unit).as_subclass(torch.Tensor))
    module.register_buffer("unit", torch.ones(6).as_subclass(Unit))
    return module, x()


@kind
def dropout_in_training() -> Any:
    return nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)), x()


@kind
def noise() -> Any:
    return Of(lambda m, x: m.linear(x) + torch.randn_like(x)), x()


@kind
def random_numbers_of_python() -> Any:
    return Of(lambda m, x: m.linear(x) * random.random()), x()


@kind
def batch_norm_in_training() -> Any:
    return nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)), x()


@kind
def batch_norm_in_evaluation() -> Any:
    return nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)).eval(), x()


@kind
def recurrent() -> Any:
    return nn.LSTM(6, 5), x(3, 4, 6)


@kind
def packed_sequence() -> Any:
    return nn.GRU(6, 5), nn.utils.rnn.pack_sequence([x(3, 6), x(2, 6)])


Pair = collections.namedtuple("Pair", "a b")


@kind
def named_tuple_as_result() -> Any:
    return Of(lambda m, x: Pair(m.linear(x), x * 2)), x()


@dataclasses.dataclass
class Result:
    y: torch.Tensor
    n: int


@kind
def object_as_result() -> Any:
    return Of(lambda m, x: Result(m.linear(x), 3)), x()


@kind
def nested_arguments() -> Any:
    return Of(lambda m, d, more=(): {"y": m.linear(d["x"][0]) + more[0], "none": None, "n": 3}), {"x": [x()]}, _Named(more=(x(),))


@kind
def rest_of_arguments() -> Any:
    class Rest(nn.Module):
        def forward(self, first: torch.Tensor, *rest: torch.Tensor, scale: float = 1.0, **named: torch.Tensor) -> torch.Tensor:
            return (first + sum(rest)) * scale + named["b"]

    return Rest(), x(), x(), x(), _Named(scale=2.0, b=x())


@kind
def writes_into_its_input() -> Any:
    return Of(lambda m, x: m.linear(x.mul_(2))), x()


@kind
def writes_into_a_buffer() -> Any:
    def run(m: Of, x: torch.Tensor) -> torch.Tensor:
        m.total.add_(x.sum())
        return m.linear(x) + m.total

    module = Of(run)
    module.register_buffer("total", torch.zeros(()))
    return module, x()


@kind
def replaces_a_buffer() -> Any:
    def run(m: Of, x: torch.Tensor) -> torch.Tensor:
        m.total = m.total + x.mean()
        return m.linear(x) + m.total

    module = Of(run)
    module.register_buffer("total", torch.zeros(()))
    return module, x()


@kind
def view_as_result() -> Any:
    return Of(lambda m, x: x.view(2, 12)), x()


@kind
def input_as_result() -> Any:
    return Of(lambda m, x: (x, m.linear(x))), x()


@kind
def integers_as_result() -> Any:
    return Of(lambda m, x: m.linear(x).argmax(-1)), x()


@kind
def size_depends_on_values() -> Any:
    return Of(lambda m, x: m.linear(x)[x[:, 0] > 0]), x()


@kind
def reads_an_item() -> Any:
    return Of(lambda m, x: m.linear(x) * x[0, 0].item()), x()


@kind
def checkpointed() -> Any:
    return Of(lambda m, x: checkpoint(m.linear, x, use_reentrant=False)), x()


@kind
def scripted_part() -> Any:
    module = Of(lambda m, x: m.part(m.linear(x)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # it is deprecated, and people have such modules
        module.part = torch.jit.trace(nn.ReLU(), x())
    return module, x()


@kind
def traced_by_fx() -> Any:
    return torch.fx.symbolic_trace(nn.Sequential(nn.Linear(6, 6), nn.ReLU())), x()


@kind
def double_precision() -> Any:
    return nn.Linear(6, 6).double(), x().double()


@kind
def half_precision() -> Any:
    return nn.Linear(6, 6).bfloat16(), x().bfloat16()


@kind
def transformed_by_functorch() -> Any:
    return Of(lambda m, x: torch.func.vmap(m.linear)(x)), x()


@kind
def gradient_inside() -> Any:
    def run(m: Of, x: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            z = x.detach().requires_grad_()
            return torch.autograd.grad(F.gelu(m.linear(z)).sum(), z)[0]

    return Of(run), x()


@kind
def own_attribute_access() -> Any:
    class Proxy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 6)

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, self.weight, self.bias)

    return Proxy(), x()


@kind
def holds_a_lock() -> Any:
    def run(m: Of, x: torch.Tensor) -> torch.Tensor:
        with m.lock:
            return m.linear(x)

    return Of(run, lock=threading.Lock()), x()


@kind
def unregistered_part() -> Any:
    return Of(lambda m, x: m.parts[0](x) + m.linear(x), parts=[nn.Linear(6, 6)]), x()


@kind
def tensor_attribute() -> Any:
    return Of(lambda m, x: m.linear(x) * m.scale, scale=torch.rand(6)), x()


@kind
def patched_forward() -> Any:
    module = nn.Linear(6, 6)
    module.forward = lambda x: nn.Linear.forward(module, x) + 1  # type: ignore[method-assign]
    return module, x()


@kind
def reads_a_mode() -> Any:
    return Of(lambda m, x: m.linear(x) * (2 if torch.is_grad_enabled() else 3)), x()


@kind
def transposed_input() -> Any:
    return nn.Linear(4, 6), x(4, 5).mT


@kind
def empty_input() -> Any:
    return nn.Linear(6, 6), x(0, 6)


@kind
def attention_on_its_fast_path() -> Any:
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), x(2, 3, 8)
