"""Spaces of parameters: axes, the constraints between them, and what they rule out with the reason."""

from __future__ import annotations

import itertools
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
    """All combinations of the axes' values that the constraints allow."""

    axes: tuple[Axis, ...]
    constraints: tuple[Constraint, ...] = ()

    @property
    def size(self) -> int:
        """Combinations before the constraints."""
        count = 1
        for axis in self.axes:
            count *= len(axis.values)
        return count

    def broken(self, params: Params) -> Constraint | None:
        """The first constraint that the combination breaks."""
        return next((c for c in self.constraints if not c.holds(params)), None)

    def combinations(self) -> Iterator[Params]:
        """Every combination, those that a constraint rules out among them."""
        names = [a.name for a in self.axes]
        for values in itertools.product(*(a.values for a in self.axes)):
            yield dict(zip(names, values))

    def allowed(self) -> Iterator[Params]:
        return (p for p in self.combinations() if self.broken(p) is None)

    def corners(self) -> tuple[Params, ...]:
        """A few allowed combinations in which every value of every axis occurs, if it is allowed at all."""
        missing = {(a.name, v) for a in self.axes for v in a.values}
        chosen: list[Params] = []
        for params in self.allowed():
            if missing & set(params.items()):
                chosen.append(params)
                missing -= set(params.items())
        return tuple(chosen)
