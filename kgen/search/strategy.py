"""What every strategy is: points asked for one at a time, and told what they came to."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter, deque
from typing import ClassVar, Iterable, Sequence

from kgen.search.points import Option, Point

FAILED = float("inf")  #: what a point that was not right came to, in milliseconds

#: How often a point is drawn at random before those that are left are looked through.
_DRAWS = 64


class Strategy(ABC):
    """Proposes points and learns what they came to.

    The same options, seed, first points and answers, told between the same questions, give the same points. Several
    points may be asked for before the first is told of, and a point that was not asked for may be told of.
    """

    name: ClassVar[str]

    def __init__(self, options: Sequence[Option], seed: int = 0, first: Iterable[Point] = ()) -> None:
        """``first`` are points to begin with, the most promising first: what similar problems were fastest with."""
        self.options = tuple(options)
        self.random = random.Random(seed)
        self.asked: set[Point] = set()
        self.waiting: set[Point] = set()  # asked for and not told of
        self.told: dict[Point, float] = {}  # milliseconds, or FAILED
        self._first = deque(first)
        self._count: Counter[int] = Counter()  # points asked for, by option

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

    def left(self, option: int) -> bool:
        """Whether there are points of the option that were not asked for."""
        return self._count[option] < self.options[option].size

    def draw(self, number: int) -> Point | None:
        """Any point of the option that was not asked for; ``None`` where there is none."""
        if not self.left(number):
            return None
        for _ in range(_DRAWS):
            point = Point(number, self.options[number].draw(self.random))
            if point not in self.asked:
                return point
        return next(p for p in (Point(number, c) for c in self.options[number].choices()) if p not in self.asked)
