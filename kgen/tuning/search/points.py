"""What is searched: plans, the kernels that they are made of, and points."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from random import Random
from typing import Iterable, Iterator, overload

from kgen.candidate import Params, ParamValue


class KernelSpace(Sequence[Params]):
    """A kernel as the search sees it: its allowed combinations of parameters, the plainest first.

    Plans that have a kernel in common share one object: what is learnt of it in one plan holds in the others. It is
    compared by identity.
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


#: A combination for each kernel of a plan, by their numbers.
Choice = tuple[int, ...]


@dataclass(frozen=True)
class Point:
    """One point: an option by its number, and for each of its kernels a combination by its number."""

    option: int
    choice: Choice


@dataclass(frozen=True)
class Option:
    """A plan as the search sees it: its kernels, which do not influence each other, but for a ``common`` parameter.

    The kernels that have the common parameter have the same value of it in every point.
    """

    name: str
    kernels: tuple[KernelSpace, ...]
    common: str = ""

    @cached_property
    def values(self) -> tuple[ParamValue | None, ...]:
        """The values of the common parameter that every kernel with it has, the plainest first; ``(None,)`` without."""
        having = [dict.fromkeys(p[self.common] for p in k) for k in self.kernels if k and self.common in k[0]]
        return tuple(v for v in having[0] if all(v in of for of in having)) if having else (None,)

    @cached_property
    def size(self) -> int:
        """How many points there are: the product over the kernels."""
        return sum(self._sizes)

    @cached_property
    def plainest(self) -> Choice | None:
        """The first point's choice; ``None`` where there is no point."""
        return next(self.choices(), None)

    def indices(self, kernel: int, value: ParamValue | None) -> range | tuple[int, ...]:
        """The combinations of a kernel that go with ``value`` of the common parameter."""
        return self._indices[kernel].get(value, range(len(self.kernels[kernel])))

    def draw(self, random: Random) -> Choice:
        """Any point's choice, each as likely as another; there has to be one."""
        value = random.choices(self.values, weights=self._sizes)[0]
        return tuple(random.choice(self.indices(k, value)) for k in range(len(self.kernels)))

    def changed(self, choice: Choice, kernel: int, index: int) -> Choice:
        """``choice`` with another combination of one kernel. Where that changes the common parameter, the others follow."""
        if not 0 <= index < len(self.kernels[kernel]):
            raise IndexError(f"{self.kernels[kernel].name} has no combination {index}")
        wanted = self.kernels[kernel][index].get(self.common)
        others = (i if wanted is None else self._following(k, i, wanted) for k, i in enumerate(choice))
        return tuple(index if k == kernel else i for k, i in enumerate(others))

    def choices(self) -> Iterator[Choice]:
        """Every point's choice, the last kernel's combinations changing fastest."""
        for value in self.values:
            yield from product(*(self.indices(k, value) for k in range(len(self.kernels))))

    def _following(self, kernel: int, index: int, wanted: ParamValue) -> int:
        """The combination that differs from ``index`` in the common parameter alone, or the plainest with its value."""
        params = self.kernels[kernel][index]
        if params.get(self.common, wanted) == wanted:
            return index
        follows = self._numbers[kernel].get(frozenset({**params, self.common: wanted}.items()))
        return self.indices(kernel, wanted)[0] if follows is None else follows

    @cached_property
    def _sizes(self) -> tuple[int, ...]:
        """How many points there are with each value of the common parameter."""
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
        """For each kernel the numbers of its combinations."""
        return tuple({frozenset(p.items()): n for n, p in enumerate(kernel)} for kernel in self.kernels)


def distinct_kernels(options: Iterable[Option]) -> tuple[KernelSpace, ...]:
    """The kernels of all plans, each once."""
    return tuple(dict.fromkeys(kernel for option in options for kernel in option.kernels))
