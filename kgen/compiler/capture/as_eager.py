"""The paths of eager PyTorch: modules take others where they see that they are exported.

    torch.compiler.is_exporting()         packages build masks then, without which attention is several times as fast
    isinstance(x, FakeTensor)             the same: they read no value of a fake tensor. Some values are known (below)
    has_torch_function, _is_make_fx_tracing    PyTorch's own attention leaves its fused operators

A fake tensor that depends on numbers alone, as ``torch.arange(8)`` does, has its values here. A forward may branch on
them.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Callable, Iterator

TRACED_ON = "cpu"  #: the device of the tensors with which a problem is traced first
MOST_KNOWN = 1 << 20  #: elements of a tensor of numbers whose values are known

#: PyTorch's own modules with fused operators of attention.
_FUSED = frozenset(("torch.nn.modules.activation", "torch.nn.modules.transformer"))

#: Operators that make a tensor of numbers.
_FACTORIES = frozenset(("arange", "full", "zeros", "ones", "eye", "linspace", "scalar_tensor"))


@contextmanager
def paths() -> Iterator[None]:
    """Let modules take the paths that they take in eager PyTorch. Export's own questions get the usual answers."""
    import torch
    import torch.nn.modules.activation as activation

    unseen: list[tuple[Any, str, Callable[[str], bool]]] = [
        (torch.compiler, "is_compiling", _is_foreign),
        (torch.compiler, "is_exporting", _is_foreign),
        (torch.compiler, "is_dynamo_compiling", _is_foreign),
        (torch.overrides, "has_torch_function", _FUSED.__contains__),
        (activation, "_is_make_fx_tracing", _FUSED.__contains__),
    ]
    saved = [getattr(holder, name) for holder, name, _ in unseen]
    for (holder, name, unseen_by), asked in zip(unseen, saved):
        setattr(holder, name, _no_to(unseen_by, asked))
    fakes: Any = torch._subclasses
    fakes.__class__ = _Fakes
    try:
        yield
    finally:
        fakes.__class__ = ModuleType
        for (holder, name, _), asked in zip(unseen, saved):
            setattr(holder, name, asked)


def _no_to(unseen_by: Callable[[str], bool], asked: Callable[..., Any]) -> Callable[..., Any]:
    """The question with the answer ``False`` for modules that are not to see that they are exported."""

    def answer(*args: Any) -> Any:
        return False if unseen_by(_caller(2)) else asked(*args)

    return answer


def _caller(depth: int) -> str:
    return sys._getframe(depth).f_globals.get("__name__", "")


def _is_foreign(module: str) -> bool:
    """Whether a module is none of PyTorch's own."""
    return module.partition(".")[0] != "torch"


class _WithoutValues(type):
    """The class of fake tensors as packages see it: those whose values are known are tensors as all others."""

    def __instancecheck__(self, instance: Any) -> bool:
        from torch._subclasses.fake_tensor import FakeTensor

        return isinstance(instance, FakeTensor) and instance.constant is None


class _FakeTensor(metaclass=_WithoutValues):
    pass


class _Fakes(ModuleType):
    """The module ``torch._subclasses``."""

    @property
    def FakeTensor(self) -> type:
        return _FakeTensor if _is_foreign(_caller(2)) else vars(self)["FakeTensor"]


def fake_mode(**options: Any) -> Any:
    """A mode of fake tensors that knows the values of tensors which are made of numbers alone."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(**options)
    usual = mode.dispatch

    def dispatch(func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = usual(func, types, args, kwargs)
        if getattr(func, "namespace", "") == "aten" and func._opname in _FACTORIES and _may_be_known(found):
            found.constant = _computed(func, args, kwargs or {})
        return found

    # No class of its own: torch looks up what runs in a mode by the mode's class.
    mode.dispatch = dispatch
    mode.may_turn_const = lambda tensor: not mode.is_our_fake(tensor) and _may_be_known(tensor)
    return mode


def _may_be_known(tensor: Any) -> bool:
    sizes = all(isinstance(size, int) for size in tensor.shape)
    return sizes and tensor.numel() <= MOST_KNOWN and not tensor.is_sparse and tensor.device.type == TRACED_ON


def _computed(func: Any, args: Any, kwargs: Any) -> Any:
    from torch.utils._mode_utils import no_dispatch

    with no_dispatch():
        return func(*args, **kwargs)
