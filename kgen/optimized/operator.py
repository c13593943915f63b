"""The operator ``kgen::run``, by which a program that is compiled calls an optimised module without a graph break.

torch.ops.kgen.run(handle, inputs) ──> the module's dispatch: a winner, or the original
"""

import itertools
import re
from dataclasses import dataclass
from typing import Any, Protocol, Sequence
from weakref import WeakValueDictionary

import torch
from torch import nn

from kgen.optimized.calls import tensors_of

_MOST_TENSORS = 8  # inputs; parameters stay behind the handle
_WRITES_STATE = re.compile(r"aten\.\w+_\.\w+\(self\b|^\s*self\b.*\.copy_\(", re.MULTILINE)

_dispatches: "WeakValueDictionary[int, Dispatched]" = WeakValueDictionary()
_handles = itertools.count(1)
_library = torch.library.Library("kgen", "FRAGMENT")
_library.define("run(int handle, Tensor[] inputs) -> Tensor[]")


@dataclass(frozen=True)
class Outline:
    """The kind of a tensor: sizes, strides, dtype and device."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, x: torch.Tensor) -> "Outline":
        """That of a tensor."""
        return cls(tuple(x.shape), x.stride(), x.dtype, x.device)


@dataclass(frozen=True)
class Operation:
    """A call that the operator can stand for: the kinds of its inputs and results. ``single``: the result is one
    tensor."""

    inputs: tuple[Outline, ...]
    results: tuple[Outline, ...]
    single: bool


class Dispatched(Protocol):
    """The forward of an optimised module: its own operator knows no more of it."""

    owner: nn.Module
    operation: Operation | None

    def __call__(self, owner: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One call of the module ``owner``."""


def operation(owner: nn.Module, args: Sequence[Any], kwargs: Any, outcome: Any, text: str) -> Operation | None:
    """The operation of a recorded call; ``None`` where the operator cannot stand for it.

    It takes and gives plain tensors, which share no memory, and writes nothing. ``text`` is that of the module's
    problem.
    """
    single = isinstance(outcome, torch.Tensor)
    results = [outcome] if single else outcome
    if kwargs or len(args) > _MOST_TENSORS or not (single or type(results) is tuple):
        return None
    if not all(type(x) in (torch.Tensor, nn.Parameter) for x in [*args, *results]):
        return None
    if _WRITES_STATE.search(text) or (any(True for _ in owner.buffers()) and any(m.training for m in owner.modules())):
        return None
    held = {x.untyped_storage().data_ptr() for x in [*tensors_of([*args]), *owner.parameters(), *owner.buffers()]}
    found = [x.untyped_storage().data_ptr() for x in results]
    if held & set(found) or len(set(found)) < len(found):
        return None
    return Operation(tuple(map(Outline.of, args)), tuple(map(Outline.of, results)), single)


def register(dispatch: Dispatched) -> int:
    """A handle for a dispatch, for as long as that lives."""
    handle = next(_handles)
    _dispatches[handle] = dispatch
    return handle


@torch.library.impl(_library, "run", "CompositeExplicitAutograd")
def _run(handle: int, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    dispatch = _dispatches[handle]
    found = dispatch(dispatch.owner, tuple(inputs), {})
    results = [found] if isinstance(found, torch.Tensor) else list(found)
    return [x.clone() if any(x is y for y in inputs) else x for x in results]


@torch.library.register_fake("kgen::run", lib=_library)
def _fake(handle: int, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    made = _dispatches[handle].operation
    assert made is not None
    return [torch.empty_strided(x.shape, x.stride, dtype=x.dtype, device=x.device) for x in made.results]
