"""Changes one kernel of a fast plan at a time, near its best point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgen.candidate import Params
from kgen.tuning.search.points import Choice, Option, Point
from kgen.tuning.search.strategy import FAILED, Strategy

_PREFERENCE = 0.55  # probability; an option is taken before the next slower one


class Coordinate(Strategy):
    """Random steps from the best point of a plan, one kernel at a time, without a model of the parameters.

    opening    every plan with each kernel's first combination
    then       a plan, faster ones more likely, and one of its kernels; a combination that this plan has not tried,
               half of the time a neighbour of the best one (one parameter changed); the other kernels at their best
    """

    name = "coordinate"

    def __init__(self, options: Sequence[Option], seed: int = 0, first: Iterable[Point] = ()) -> None:
        super().__init__(options, seed, first)
        self._best: dict[int, tuple[float, Choice]] = {}
        self._seen: list[list[set[int]]] = [[set() for _ in option.kernels] for option in self.options]

    def _take(self, point: Point) -> None:
        super()._take(point)
        for seen, index in zip(self._seen[point.option], point.choice):
            seen.add(index)

    def _learn(self, point: Point, ms: float) -> None:
        if ms < self._milliseconds(point.option):
            self._best[point.option] = ms, point.choice

    def _milliseconds(self, number: int) -> float:
        return self._best.get(number, (FAILED, ()))[0]

    def _next(self) -> Point | None:
        open_options = self.open_options()
        return self.opening() or (self._improved(self._preferred(open_options)) if open_options else None)

    def _preferred(self, numbers: list[int]) -> int:
        """One of these options at random; faster ones are more likely."""
        ranked = sorted(numbers, key=self._milliseconds)
        return next((number for number in ranked[:-1] if self.random.random() <= _PREFERENCE), ranked[-1])

    def _improved(self, number: int) -> Point | None:
        """A new point of the option that differs from its best one in one kernel."""
        option, seen = self.options[number], self._seen[number]
        base = self._best[number][1] if number in self._best else option.plainest
        fresh = [[i for i in range(len(kernel)) if i not in tried] for kernel, tried in zip(option.kernels, seen)]
        if base is None or not any(fresh):
            return self.draw(number)
        k = self.random.choices(range(len(fresh)), weights=[len(left) for left in fresh])[0]
        kernel = option.kernels[k]
        near = [i for i in fresh[k] if _differences(kernel[i], kernel[base[k]]) == 1]
        index = self.random.choice(near if near and self.random.random() < 0.5 else fresh[k])
        point = Point(number, option.changed(base, k, index))
        return point if point not in self.asked else self.draw(number)


def _differences(a: Params, b: Params) -> int:
    return sum(a[name] != b[name] for name in a)
