"""What every strategy is: points asked for one at a time, and told what they came to."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter, deque
from itertools import islice
from typing import ClassVar, Iterable, Iterator, Sequence

from kgen.candidate import ParamValue
from kgen.tuning.search.points import Option, Point

FAILED = float("inf")  #: what a point that was not right came to, in milliseconds

#: How often a point is drawn at random before those that are left are looked through.
_DRAWS = 64


class Strategy(ABC):
    """Proposes points and learns what they came to.

    The same options, seed, first points and answers, told between the same questions, give the same points. Several
    points may be asked for before the first is told of, and a point that was not asked for may be told of.
    """

    name: ClassVar[str]
    learns: ClassVar[bool] = True  #: whether answers, and points to begin with, change what is asked for

    def __init__(self, options: Sequence[Option], seed: int = 0, first: Iterable[Point] = ()) -> None:
        """``first`` are points to begin with, the most promising first: what similar problems were fastest with."""
        self.options = tuple(options)
        self.random = random.Random(seed)
        self.asked: set[Point] = set()
        self.waiting: set[Point] = set()  # asked for and not told of
        self.told: dict[Point, float] = {}  # milliseconds, or FAILED
        self._first = deque(first)
        self._count: Counter[int] = Counter()  # points asked for, by option

    @classmethod
    def most(cls, options: Sequence[Option]) -> int | None:
        """How many points it asks for at most; ``None`` where it asks for every one in the end."""
        return None

    @classmethod
    def require(cls) -> None:
        """Raises :class:`kgen.errors.InputError` where what the strategy needs is not installed."""

    def ask(self) -> Point | None:
        """The next point, never one that was asked for or told of before.

        ``None`` where none is left, or none before more of those asked for are told of.
        """
        point = self._begin() or self._next()
        if point is not None:
            self._take(point)
            self.waiting.add(point)
        return point

    def tell(self, point: Point, ms: float | None) -> None:
        """What a point came to: milliseconds, or ``None`` where it failed."""
        self._take(point)
        self.waiting.discard(point)
        self.told[point] = FAILED if ms is None else ms
        self._learn(point, self.told[point])

    @abstractmethod
    def _next(self) -> Point | None:
        """A point that was not asked for, when the first ones were."""

    def _learn(self, point: Point, ms: float) -> None:
        """Take an answer into account."""

    def _begin(self) -> Point | None:
        while self._first:
            point = self._first.popleft()
            if point not in self.asked:
                return point
        return None

    def _take(self, point: Point) -> None:
        if point not in self.asked:
            self.asked.add(point)
            self._count[point.option] += 1

    def open_options(self) -> list[int]:
        """The options with points that were not asked for."""
        return [n for n, option in enumerate(self.options) if self._count[n] < option.size]

    def opening(self) -> Point | None:
        """The plainest point of the first option of which no point was asked for; ``None`` where all were begun."""
        begun = ((n, o.plainest) for n, o in enumerate(self.options) if not self._count[n])
        return next((Point(number, plainest) for number, plainest in begun if plainest is not None), None)

    def draw(self, number: int) -> Point:
        """Any point of an open option that was not asked for."""
        for _ in range(_DRAWS):
            point = Point(number, self.options[number].draw(self.random))
            if point not in self.asked:
                return point
        return next(p for p in (Point(number, c) for c in self.options[number].choices()) if p not in self.asked)

    def cheapest(self, number: int, costs: Sequence[Sequence[float]]) -> tuple[float, Point] | None:
        """Of an option's points that were not asked for, the one with the least sum of its kernels' costs, and the sum.

        ``costs`` are those of the combinations of each kernel. Looked at are, for each value of a common parameter, the
        cheapest point and, where that was asked for, those with one kernel changed; ``None`` where all of them were.
        """
        found = [point for value in self.options[number].values for point in self._cheap(number, value, costs)]
        priced = [(sum(of[i] for of, i in zip(costs, point.choice)), point) for point in found]
        return min(priced, key=lambda one: one[0], default=None)

    def _cheap(self, number: int, value: ParamValue | None, costs: Sequence[Sequence[float]]) -> Iterator[Point]:
        option = self.options[number]
        ranked = [sorted(option.indices(k, value), key=of.__getitem__) for k, of in enumerate(costs)]
        best = tuple(indices[0] for indices in ranked)
        if Point(number, best) not in self.asked:
            yield Point(number, best)
            return
        for k, indices in enumerate(ranked):
            changes = (Point(number, (*best[:k], i, *best[k + 1 :])) for i in indices)
            yield from islice((point for point in changes if point not in self.asked), 1)
