"""The space of a search: options (plans), their kernels, and points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from random import Random
from typing import Iterable, Iterator, overload

from kgen.candidate import Params, ParamValue

SPREAD = 8  # combinations of a kernel that differ in two values from each other, before any others


class KernelSpace(Sequence[Params]):
    """The allowed combinations of one kernel's parameters, the simplest first.

    Plans with a common kernel share one object, so results from one plan hold in the others. Objects are compared by
    identity.
    """

    def __init__(self, name: str, combinations: Iterable[Params]) -> None:
        self.name, self._combinations = name, tuple(combinations)

    def __repr__(self) -> str:
        return f"KernelSpace({self.name!r}, {len(self)} combinations)"

    def __len__(self) -> int:
        return len(self._combinations)

    @overload
    def __getitem__(self, index: int) -> Params: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Params]: ...
    def __getitem__(self, index: int | slice) -> Params | Sequence[Params]:
        return self._combinations[index]

    @cached_property
    def spread(self) -> tuple[int, ...]:
        """For each combination, its place in an order for few answers.

        The first ones differ in two values from each other, so that each answer tells of two. The others follow as
        declared.
        """
        first: list[int] = []
        for index, params in enumerate(self):
            if all(len(params.items() - self[other].items()) > 1 for other in first):
                first.append(index)
                if len(first) == SPREAD:
                    break
        places = {index: place - len(first) for place, index in enumerate(first)}
        return tuple(places.get(index, index) for index in range(len(self)))


#: The index of a combination for each kernel of a plan.
Choice = tuple[int, ...]


@dataclass(frozen=True)
class Point:
    """A point: the index of an option, for each of its kernels the index of a combination, and how forward is
    launched."""

    option: int
    choice: Choice
    launching: str = ""


@dataclass(frozen=True)
class Option:
    """A plan for the search: its kernels, which are independent except for a ``common`` parameter.

    In each point, all kernels with the common parameter have the same value of it. ``predicted_ms`` is 0 where nothing
    is predicted. ``rewrites`` names those of its graphs.
    """

    name: str
    kernels: tuple[KernelSpace, ...]
    common: str = ""
    predicted_ms: float = 0.0
    rewrites: frozenset[str] = frozenset()

    @cached_property
    def values(self) -> tuple[ParamValue | None, ...]:
        """The values of the common parameter that all kernels with it allow, the simplest first; else ``(None,)``."""
        having = [dict.fromkeys(p[self.common] for p in k) for k in self.kernels if k and self.common in k[0]]
        return tuple(v for v in having[0] if all(v in of for of in having)) if having else (None,)

    @cached_property
    def size(self) -> int:
        """The number of points: the product over the kernels."""
        return sum(self._sizes)

    @cached_property
    def plainest(self) -> Choice | None:
        """The choice of the first, simplest point; ``None`` without points."""
        return next(self.choices(), None)

    def indices(self, kernel: int, value: ParamValue | None) -> range | tuple[int, ...]:
        """The combinations of a kernel with ``value`` of the common parameter."""
        return self._indices[kernel].get(value, range(len(self.kernels[kernel])))

    def draw(self, random: Random) -> Choice:
        """The choice of a random point, all equally likely. The option must have a point."""
        shares = [size / self.size for size in self._sizes]  # numbers of points may be too large for a float
        value = random.choices(self.values, weights=shares)[0]
        return tuple(random.choice(self.indices(k, value)) for k in range(len(self.kernels)))

    def changed(self, choice: Choice, kernel: int, index: int) -> Choice:
        """``choice`` with another combination of one kernel. The other kernels follow its common parameter."""
        if not 0 <= index < len(self.kernels[kernel]):
            raise IndexError(f"{self.kernels[kernel].name} has no combination {index}")
        wanted = self.kernels[kernel][index].get(self.common)
        others = (i if wanted is None else self._following(k, i, wanted) for k, i in enumerate(choice))
        return tuple(index if k == kernel else i for k, i in enumerate(others))

    def choices(self) -> Iterator[Choice]:
        """The choices of all points; the last kernel changes fastest."""
        for value in self.values:
            yield from product(*(self.indices(k, value) for k in range(len(self.kernels))))

    def _following(self, kernel: int, index: int, wanted: ParamValue) -> int:
        """The combination that differs from ``index`` only in the common parameter, else the simplest with its
        value."""
        params = self.kernels[kernel][index]
        if params.get(self.common, wanted) == wanted:
            return index
        follows = self._numbers[kernel].get(frozenset({**params, self.common: wanted}.items()))
        return self.indices(kernel, wanted)[0] if follows is None else follows

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        """The number of points for each value of the common parameter."""
        kernels = range(len(self.kernels))
        return tuple(math.prod(len(self.indices(k, value)) for k in kernels) for value in self.values)

    @cached_property
    def _indices(self) -> tuple[dict[ParamValue | None, tuple[int, ...]], ...]:
        """For each kernel with the common parameter, its combinations by that parameter's value."""
        found: list[dict[ParamValue | None, tuple[int, ...]]] = []
        for kernel in self.kernels:
            by_value: dict[ParamValue | None, tuple[int, ...]] = {}
            for number, params in enumerate(kernel):
                if self.common in params:
                    value = params[self.common]
                    by_value[value] = (*by_value.get(value, ()), number)
            found.append(by_value)
        return tuple(found)

    @cached_property
    def _numbers(self) -> tuple[dict[frozenset[tuple[str, ParamValue]], int], ...]:
        """For each kernel, the index of each combination."""
        return tuple({frozenset(p.items()): n for n, p in enumerate(kernel)} for kernel in self.kernels)


def distinct_kernels(options: Iterable[Option]) -> tuple[KernelSpace, ...]:
    """The kernels of all plans, each once."""
    return tuple(dict.fromkeys(kernel for option in options for kernel in option.kernels))
