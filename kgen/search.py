"""Search: which candidate next. Ask and tell, without torch and without knowing what a candidate is.

An :class:`Option` is one way to go (a fusion plan) with the combinations of parameters that each of its kernels may
have. The kernels of a plan do not influence each other, so a point is improved one kernel at a time and the space is
searched as a sum, not as a product:

    opening     every option once, each kernel with its plainest combination
    then        an option, the faster the likelier; one of its kernels; a combination of that kernel not tried yet,
                half of the time a neighbour of the best one (one parameter changed); the other kernels at their best
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from dataclasses import dataclass, field
from typing import Sequence

from kgen.candidate import Params

#: How much likelier an option is than the next slower one.
_PREFERENCE = 0.55


@dataclass(frozen=True)
class Option:
    """A plan as the search sees it: for each kernel, its allowed combinations, the plainest first."""

    name: str
    kernels: tuple[tuple[Params, ...], ...]

    @property
    def size(self) -> int:
        """How many points there are."""
        count = 1
        for combinations in self.kernels:
            count *= len(combinations)
        return count


@dataclass(frozen=True)
class Point:
    """One point: an option by its number, and for each kernel a combination by its number."""

    option: int
    choice: tuple[int, ...]


@dataclass
class _State:
    """What is known of one option. Values are milliseconds; a failure is infinite."""

    tried: set[tuple[int, ...]] = field(default_factory=set)
    seen: list[set[int]] = field(default_factory=list)  # combinations tried, by kernel
    best: tuple[int, ...] | None = None
    value: float = float("inf")


class Search:
    """Proposes points until there are none left. The same seed and the same answers give the same points."""

    def __init__(self, options: Sequence[Option], seed: int = 0) -> None:
        self.options = tuple(options)
        self._random = random.Random(seed)
        self._states = [_State(seen=[set() for _ in o.kernels]) for o in self.options]
        self._opening = deque(range(len(self.options)))

    def ask(self) -> Point | None:
        """The next point, never one that was asked for before; ``None`` when all were."""
        while self._opening:
            number = self._opening.popleft()
            if all(self.options[number].kernels):
                return self._take(number, (0,) * len(self.options[number].kernels))
        for number in self._preferred():
            choice = self._improve(number)
            if choice is not None:
                return self._take(number, choice)
        return None

    def tell(self, point: Point, value: float | None) -> None:
        """What a point came to: milliseconds, or ``None`` where it failed."""
        state = self._states[point.option]
        state.tried.add(point.choice)
        for seen, index in zip(state.seen, point.choice):
            seen.add(index)
        if value is not None and value < state.value:
            state.best, state.value = point.choice, value

    def _take(self, number: int, choice: tuple[int, ...]) -> Point:
        state = self._states[number]
        state.tried.add(choice)
        for seen, index in zip(state.seen, choice):
            seen.add(index)
        return Point(number, choice)

    def _preferred(self) -> list[int]:
        """Options in the order to try them in: drawn by rank, the faster ones likelier first."""
        ranked = sorted(range(len(self.options)), key=lambda n: self._states[n].value)
        order = []
        while ranked:
            at = 0
            while at < len(ranked) - 1 and self._random.random() > _PREFERENCE:
                at += 1
            order.append(ranked.pop(at))
        return order

    def _improve(self, number: int) -> tuple[int, ...] | None:
        """A point of the option that was not tried, next to its best one; ``None`` where there is none left."""
        option, state = self.options[number], self._states[number]
        if len(state.tried) >= option.size:
            return None
        base = state.best or (0,) * len(option.kernels)
        fresh = [[i for i in range(len(c)) if i not in s] for c, s in zip(option.kernels, state.seen)]
        if any(fresh):
            kernel = self._random.choices(range(len(fresh)), weights=[len(f) for f in fresh])[0]
            near = [i for i in fresh[kernel] if _distance(option.kernels[kernel][i], option.kernels[kernel][base[kernel]]) == 1]
            index = self._random.choice(near if near and self._random.random() < 0.5 else fresh[kernel])
            return base[:kernel] + (index,) + base[kernel + 1 :]
        # Every combination of every kernel was tried with something: pair them anew.
        for _ in range(64):
            choice = tuple(self._random.randrange(len(c)) for c in option.kernels)
            if choice not in state.tried:
                return choice
        every = itertools.product(*(range(len(c)) for c in option.kernels))
        return next((choice for choice in every if choice not in state.tried), None)


def _distance(a: Params, b: Params) -> int:
    return sum(a[name] != b[name] for name in a)
