"""Spaces of parameters: axes, the constraints between them, and what they rule out with the reason."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Callable, Iterator

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
        return (p for p in self.combinations() if self.broken(p) is None)

    def covering_set(self) -> tuple[Params, ...]:
        """A few allowed combinations in which every value of every axis occurs, if it is allowed at all."""
        missing = {(a.name, v) for axes in (self.axes, *self.alternatives) for a in axes for v in a.values}
        chosen: list[Params] = []
        for params in self.allowed():
            if missing & set(params.items()):
                chosen.append(params)
                missing -= set(params.items())
        return tuple(chosen)
