"""The base of all strategies: it is asked for one point at a time and told each answer."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter, deque
from itertools import islice
from typing import ClassVar, Iterable, Iterator, Sequence

from kgen.candidate import ParamValue
from kgen.tuning.search.points import Option, Point

FAILED = float("inf")  # ms; the time of a point that was not right

_DRAWS = 64  # random draws; after them, the remaining points are listed


class Strategy(ABC):
    """Proposes points and learns from their times.

    Equal options, seed, first points and order of calls give equal points. A strategy may be asked for several points
    before the first answer. It may be told the answer of a point that it did not propose.
    """

    name: ClassVar[str]
    learns: ClassVar[bool] = True  #: whether answers and first points change the order of points

    def __init__(self, options: Sequence[Option], seed: int = 0, first: Iterable[Point] = ()) -> None:
        """``first`` are warm-start points, the most promising first."""
        self.options = tuple(options)
        self.random = random.Random(seed)
        self.asked: set[Point] = set()
        self.waiting: set[Point] = set()  # asked for, without an answer
        self.told: dict[Point, float] = {}  # milliseconds, or FAILED
        self._first = deque(first)
        self._count: Counter[int] = Counter()  # points asked for, by option

    @classmethod
    def most(cls, options: Sequence[Option]) -> int | None:
        """The most points that it asks for; ``None`` where it finally asks for all of them."""
        return None

    @classmethod
    def require(cls) -> None:
        """Raises :class:`kgen.errors.InputError` where a required package is not installed."""

    def ask(self) -> Point | None:
        """The next new point; ``None`` where none is left or more answers are needed first."""
        point = self._begin() or self._next()
        if point is not None:
            self._take(point)
            self.waiting.add(point)
        return point

    def tell(self, point: Point, ms: float | None) -> None:
        """The answer of a point: milliseconds, or ``None`` where it failed."""
        self._take(point)
        self.waiting.discard(point)
        self.told[point] = FAILED if ms is None else ms
        self._learn(point, self.told[point])

    def refuse(self, point: Point) -> None:
        """A point that failed was refused because it errs too much; called after its answer."""

    def see_inside(self, point: Point, kernels: Sequence[float | None]) -> None:
        """The milliseconds of a point's kernels inside its file, where they are known; called after its answer."""

    @abstractmethod
    def _next(self) -> Point | None:
        """A new point, after the first points were asked for."""

    def _learn(self, point: Point, ms: float) -> None:
        """Learn from an answer."""

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
        """The options that have new points."""
        return [n for n, option in enumerate(self.options) if self._count[n] < option.size]

    def opening(self) -> Point | None:
        """The simplest point of the first option without a point asked for; ``None`` where all have one."""
        begun = ((n, o.plainest) for n, o in enumerate(self.options) if not self._count[n])
        return next((Point(number, plainest) for number, plainest in begun if plainest is not None), None)

    def draw(self, number: int) -> Point:
        """A random new point of an open option."""
        for _ in range(_DRAWS):
            point = Point(number, self.options[number].draw(self.random))
            if point not in self.asked:
                return point
        return next(p for p in (Point(number, c) for c in self.options[number].choices()) if p not in self.asked)

    def cheapest(self, number: int, costs: Sequence[Sequence[float]]) -> tuple[float, Point] | None:
        """The cheapest new point of an option, with its cost: the sum of the costs of its kernels' combinations.

        ``costs`` holds the cost of each combination of each kernel. For each value of a common parameter, the cheapest
        point is considered, or those with one kernel changed where it was asked for. Returns ``None`` where none of
        these is new.
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
