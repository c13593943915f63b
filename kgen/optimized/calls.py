"""Calls: how forward was called when it was recorded, and whether another call is one like it.

args, kwargs ── Signature.values ──> the recorded parameters' values, in order ── Shape.leaves ──> tensors
"""

import inspect
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_EMPTY = inspect.Parameter.empty
_MOST_PATTERNS = 64  # ways to call that are remembered

Place = tuple[str, Any]  #: the name of a parameter, and the key or index within one that gathers others


def call_of(inputs: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call, from ``inputs`` as ``optimize`` takes them: one tensor, or a sequence of arguments."""
    args = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
    return args, dict(kwargs or {})


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in lists, tuples and dicts, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [x for item in value for x in tensors_of(item)]
    if isinstance(value, dict):
        return [x for item in value.values() for x in tensors_of(item)]
    return []


def is_ordinary(value: Any) -> bool:
    """Whether all tensors of a value are plain and dense: no subclasses, and none that torch.func has wrapped."""
    return all(
        type(x) in _PLAIN and not torch._C._functorch.is_functorch_wrapped_tensor(x) and x.layout is torch.strided
        for x in tensors_of(value)
    )


def copied(value: Any) -> Any:
    """The value with copies of its tensors, which a forward may write into."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.layout is torch.strided else value
    if type(value) in (list, tuple):
        return type(value)(copied(item) for item in value)
    if type(value) is dict:
        return {key: copied(item) for key, item in value.items()}
    return value


def matches(value: Any, recorded: Any, tensors: list[torch.Tensor]) -> bool:
    """Whether an argument has the structure and the numbers of the recorded one; its tensors are added to
    ``tensors``."""
    if isinstance(recorded, torch.Tensor):
        if type(value) not in _PLAIN:
            return False
        tensors.append(value)
        return True
    if type(value) is not type(recorded):
        return False
    if type(recorded) in (list, tuple):
        return len(value) == len(recorded) and all(matches(v, r, tensors) for v, r in zip(value, recorded))
    if type(recorded) is dict:
        return list(value) == list(recorded) and all(matches(value[k], r, tensors) for k, r in recorded.items())
    return value is recorded or (
        isinstance(recorded, (bool, int, float, str, torch.dtype, torch.device)) and value == recorded
    )


class Signature:
    """The way in which forward was called, and the place of each recorded argument in calls of other ways."""

    def __init__(self, forward: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.pattern = (len(args), tuple(kwargs))
        try:
            self.signature: inspect.Signature | None = inspect.signature(forward)
        except (TypeError, ValueError):
            self.signature = None
        self.places = self._places(*self.pattern)
        self.plans: dict[Any, list[Any] | None] = {}

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any] | None:
        """The values of the recorded arguments, in order; ``None`` for a call that gives others."""
        if not kwargs and len(args) == self.pattern[0] and not self.pattern[1]:
            return args
        pattern = (len(args), tuple(kwargs))
        if pattern == self.pattern:
            return (*args, *kwargs.values())
        if pattern not in self.plans:
            if len(self.plans) >= _MOST_PATTERNS:
                return None
            self.plans[pattern] = self._plan(pattern)
        plan = self.plans[pattern]
        if plan is None:
            return None
        found = []
        for recorded, place, default in plan:
            value = args[place] if isinstance(place, int) else kwargs[place]
            if recorded:
                found.append(value)
            elif value is not default and not (
                type(value) is type(default) and isinstance(value, (int, float, str)) and value == default
            ):
                return None
        return found

    def _places(self, count: int, names: tuple[str, ...]) -> list[tuple[Place, int | str]] | None:
        """The parameter that each argument of a call goes to, with the argument's place in the call."""
        if self.signature is None:
            return None
        marks = list(range(count))
        try:
            bound = self.signature.bind(None, *marks, **{name: name for name in names}).arguments
        except TypeError:
            return None
        found: list[tuple[Place, int | str]] = []
        for name, value in list(bound.items())[1:]:
            kind = self.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                found += [((name, at), mark) for at, mark in enumerate(value)]
            elif kind is inspect.Parameter.VAR_KEYWORD:
                found += [((name, key), mark) for key, mark in value.items()]
            else:
                found.append(((name, None), value))
        return found

    def _plan(self, pattern: tuple[int, tuple[str, ...]]) -> list[Any] | None:
        """For each recorded argument, and for each other one, whether it is recorded, its place, and its default."""
        places = self._places(*pattern)
        if places is None or self.places is None or self.signature is None:
            return None
        given = dict(places)
        order = [place for place, _ in sorted(self.places, key=lambda found: self._order(found[1]))]
        if not all(place in given for place in order):
            return None
        plan: list[Any] = [(True, given.pop(place), None) for place in order]
        for (name, inner), place in given.items():
            default = self.signature.parameters[name].default
            if inner is not None or default is _EMPTY:
                return None
            plan.append((False, place, default))
        return plan

    def _order(self, mark: int | str) -> int:
        """The number of a recorded argument: positional ones come first."""
        return mark if isinstance(mark, int) else self.pattern[0] + self.pattern[1].index(mark)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "signature": None, "plans": {}}


@dataclass(frozen=True)
class TensorShape:
    """The shape of an input. Of its sizes, those that follow the batch are ``None``."""

    sizes: tuple[int | None, ...]
    strides: tuple[int, ...]
    dtype: str
    contiguous: bool

    @classmethod
    def of(cls, x: torch.Tensor, batch: int | None) -> "TensorShape":
        """That of a tensor; its first size follows the batch where it equals ``batch``."""
        free = batch is not None and x.dim() and x.shape[0] == batch
        sizes = (None, *x.shape[1:]) if free else tuple(x.shape)
        return cls(sizes, x.stride(), str(x.dtype), x.is_contiguous())

    def fits(self, x: torch.Tensor) -> bool:
        """Whether a tensor has this shape, but for the batch; where the batch differs, only contiguous ones do."""
        if (
            str(x.dtype) != self.dtype
            or x.dim() != len(self.sizes)
            or x.layout is not torch.strided
            or x.is_neg()
            or x.is_conj()
        ):
            return False
        if not all(mine is None or mine == theirs for mine, theirs in zip(self.sizes, x.shape)):
            return False
        return x.is_contiguous() if self.contiguous else x.stride() == self.strides

    def batch(self, x: torch.Tensor) -> int | None:
        """The batch of a tensor, where its first size follows that."""
        return int(x.shape[0]) if self.sizes and self.sizes[0] is None else None


def fit(shapes: Sequence[TensorShape], tensors: Sequence[torch.Tensor]) -> bool:
    """Whether tensors have these shapes, all of them at one batch of one at least."""
    if len(shapes) != len(tensors) or not all(s.fits(x) for s, x in zip(shapes, tensors)):
        return False
    batches = {s.batch(x) for s, x in zip(shapes, tensors)} - {None}
    return len(batches) <= 1 and 0 not in batches and all(x.numel() for x in tensors)
