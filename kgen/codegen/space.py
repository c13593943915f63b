"""Spaces of parameters: axes, the constraints between them, and what they rule out with the reason."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Callable, Iterator, Mapping, Sequence

from kgen.candidate import ParamValue, Params


@dataclass(frozen=True)
class Axis:
    """One parameter and the values that it may take, the plainest first."""

    name: str
    values: tuple[ParamValue, ...]


@dataclass(frozen=True)
class Constraint:
    """A named condition on parameters; ``reason`` says in one line why what breaks it cannot work or cannot win."""

    name: str
    reason: str
    holds: Callable[[Params], bool]


@dataclass(frozen=True)
class Space:
    """All combinations of the axes' values that the constraints allow.

    ``alternatives`` are the same axes with other values, for what is made in more than one way.
    """

    axes: tuple[Axis, ...]
    constraints: tuple[Constraint, ...] = ()
    alternatives: tuple[tuple[Axis, ...], ...] = ()

    @property
    def size(self) -> int:
        """Combinations before the constraints."""
        return sum(math.prod(len(a.values) for a in axes) for axes in (self.axes, *self.alternatives))

    def broken(self, params: Params) -> Constraint | None:
        """The first constraint that the combination breaks."""
        return next((c for c in self.constraints if not c.holds(params)), None)

    def combinations(self) -> Iterator[Params]:
        """Every combination, those that a constraint rules out among them."""
        for axes in (self.axes, *self.alternatives):
            for values in itertools.product(*(a.values for a in axes)):
                yield dict(zip((a.name for a in axes), values))

    def allowed(self) -> Iterator[Params]:
        """The combinations that no constraint rules out. A constraint is asked as soon as the parameters that it reads
        have values: most rule out many combinations at once."""
        for axes in (self.axes, *self.alternatives):
            bound = _Bound([a.name for a in axes])
            waiting = bound.sorted_out(self.constraints)
            if waiting is not None:
                yield from _extended(bound, axes, waiting)

    def covering_set(self) -> tuple[Params, ...]:
        """A few allowed combinations in which every value of every axis occurs, if it is allowed at all."""
        missing = {(a.name, v) for axes in (self.axes, *self.alternatives) for a in axes for v in a.values}
        chosen: list[Params] = []
        for params in self.allowed():
            if missing & set(params.items()):
                chosen.append(params)
                missing -= set(params.items())
        return tuple(chosen)


class _Unbound(Exception):
    """A constraint reads a parameter that has no value yet."""


class _Bound(dict[str, ParamValue]):
    """Parameters, the first of ``names`` with values. Reading another one raises :class:`_Unbound` with its name."""

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = names

    def __missing__(self, name: str) -> Any:
        raise _Unbound(name) if name in self.names else KeyError(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self.names else default

    def __iter__(self) -> Iterator[str]:  # a copy asks for every name, and so for its value
        return iter(self.names)

    def keys(self) -> Any:
        return self.names

    def items(self) -> Any:
        return [(name, self[name]) for name in self.names]

    def __eq__(self, other: object) -> bool:
        return dict(self.items()) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def sorted_out(self, constraints: Sequence[Constraint]) -> dict[str, list[Constraint]] | None:
        """The constraints that are still open, by the parameter that each waits for; ``None`` if one is broken."""
        waiting: dict[str, list[Constraint]] = {}
        for constraint in constraints:
            try:
                if not constraint.holds(self):
                    return None
            except _Unbound as unbound:
                waiting.setdefault(unbound.args[0], []).append(constraint)
        return waiting


def _extended(bound: _Bound, axes: Sequence[Axis], waiting: Mapping[str, list[Constraint]]) -> Iterator[Params]:
    """The allowed combinations that begin with the values in ``bound``. Constraints of ``waiting`` are open."""
    at = len(bound)
    if not waiting:
        for values in itertools.product(*(a.values for a in axes[at:])):
            yield dict(zip(bound.names, (*bound.values(), *values)))
        return
    axis = axes[at]
    due, others = waiting.get(axis.name, ()), {name: some for name, some in waiting.items() if name != axis.name}
    for value in axis.values:
        bound[axis.name] = value
        opened = bound.sorted_out(due)
        if opened is not None:
            still = {name: [*others.get(name, ()), *opened.get(name, ())] for name in (*others, *opened)} if opened else others
            yield from _extended(bound, axes, still)
        del bound[axis.name]
