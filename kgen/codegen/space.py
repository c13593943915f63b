"""Spaces of parameters: axes, the constraints between them, and what they rule out with the reason."""

from __future__ import annotations

import itertools
import math
import operator
from dataclasses import dataclass, field
from typing import Any, Callable, Generic, Iterator, Sequence, TypeVar

from kgen.candidate import Params, ParamValue

S = TypeVar("S")


@dataclass(frozen=True)
class Axis:
    """One parameter and the values that it may take, the plainest first."""

    name: str
    values: tuple[ParamValue, ...]


@dataclass(frozen=True)
class Constraint(Generic[S]):
    """A named condition on schedules; ``reason`` says in one line why what breaks it cannot work or cannot win.

    It depends on the parameters that it ``reads`` alone, of those that the space has: the others may have any value.
    """

    name: str
    reads: tuple[str, ...]
    reason: str
    holds: Callable[[S], bool]


@dataclass(frozen=True)
class Space(Generic[S]):
    """All combinations of the axes' values that the constraints allow.

    ``schedule`` makes a schedule of a combination: constraints are asked about schedules. ``alternatives`` are the same
    axes with other values, for what is made in more than one way.
    """

    schedule: Callable[..., S]
    axes: tuple[Axis, ...]
    constraints: tuple[Constraint[S], ...] = ()
    alternatives: tuple[tuple[Axis, ...], ...] = ()
    _known: dict[tuple[str, ...], dict[Any, bool]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def variants(self) -> tuple[tuple[Axis, ...], ...]:
        """The axes with their values, in each way."""
        return (self.axes, *self.alternatives)

    @property
    def size(self) -> int:
        """Combinations before the constraints."""
        return sum(math.prod(len(a.values) for a in axes) for axes in self.variants)

    def ruled_out(self) -> Iterator[tuple[Params, Constraint[S]]]:
        """Every combination that a constraint rules out, with the first one that does."""
        for axes in self.variants:
            found: list[Params] = [
                dict(zip((a.name for a in axes), values)) for values in itertools.product(*(a.values for a in axes))
            ]
            for constraint in self.constraints:
                holds = self._asked(constraint, found)
                yield from ((params, constraint) for params, held in zip(found, holds) if not held)
                found = [*itertools.compress(found, holds)]

    def allowed(self) -> Iterator[Params]:
        """The combinations that no constraint rules out. A constraint is asked as soon as the parameters that it reads
        have values: most rule out many combinations at once."""
        return itertools.chain.from_iterable(map(self._allowed, self.variants))

    def schedules(self, axes: Sequence[Axis]) -> Iterator[S]:
        """The schedules of the combinations of other axes that no constraint rules out."""
        return (self.schedule(**params) for params in self._allowed(axes))

    def covering_set(self) -> tuple[Params, ...]:
        """A few allowed combinations in which every value of every axis occurs, if it is allowed at all."""
        missing = {(a.name, v) for axes in self.variants for a in axes for v in a.values}
        chosen: list[Params] = []
        for params in self.allowed():
            if missing & set(params.items()):
                chosen.append(params)
                missing -= set(params.items())
        return tuple(chosen)

    def _allowed(self, axes: Sequence[Axis]) -> list[Params]:
        place = {axis.name: number for number, axis in enumerate(axes, 1)}
        due: list[list[Constraint[S]]] = [[] for _ in range(len(axes) + 1)]  # by the number of axes with values
        for constraint in self.constraints:
            due[max((place.get(name, 0) for name in constraint.reads), default=0)].append(constraint)
        found: list[Params] = [{axis.name: axis.values[0] for axis in axes}]  # its values stand in for those to come
        for number, constraints in enumerate(due):
            if number:
                name, values = axes[number - 1].name, axes[number - 1].values
                found = [{**params, name: value} for params in found for value in values]
            for constraint in constraints:
                found = [*itertools.compress(found, self._asked(constraint, found))]
        return found

    def _asked(self, constraint: Constraint[S], found: Sequence[Params]) -> list[bool]:
        """Whether the constraint holds for combinations of the same axes, worked out once for the values that it
        reads."""
        names = [name for name in constraint.reads if found and name in found[0]]
        known = self._known.setdefault((constraint.name, *names), {})
        values = operator.itemgetter(*names) if names else lambda params: None
        read = [*map(values, found)]
        for of, params in dict(zip(read, found)).items():
            if of not in known:
                known[of] = constraint.holds(self.schedule(**params))
        return [known[of] for of in read]


def alike(name: str, axis: str, size: int, least: int, reason: str) -> Constraint[Any]:
    """Values of more than a size are alike, so that the smallest of them stands for all; ``least`` is always
    allowed."""
    return Constraint(name, (axis,), reason, lambda s: getattr(s, axis) < 2 * size or getattr(s, axis) == least)
