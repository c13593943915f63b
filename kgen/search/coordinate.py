"""One kernel of the faster plans at a time, near what was best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kgen.candidate import Params
from kgen.search.points import Choice, Option, Point
from kgen.search.strategy import FAILED, Strategy

#: How much likelier an option is than the next slower one.
_PREFERENCE = 0.55


class Coordinate(Strategy):
    """
        opening     every option once, each kernel with its plainest combination
        then        an option, the faster the likelier; one of its kernels; a combination of that kernel not tried yet,
                    half of the time a neighbour of the best one (one parameter changed); the other kernels at their best
    """

    name = "coordinate"

    def __init__(self, options: Sequence[Option], seed: int = 0, first: Iterable[Point] = ()) -> None:
        super().__init__(options, seed, first)
        self._opening = [Point(n, o.plainest) for n, o in enumerate(self.options) if o.plainest is not None][::-1]
        self._best: dict[int, tuple[float, Choice]] = {}
        self._seen = [[set() for _ in o.kernels] for o in self.options]

    def _take(self, point: Point) -> None:
        super()._take(point)
        for seen, index in zip(self._seen[point.option], point.choice):
            seen.add(index)

    def _learn(self, point: Point, ms: float) -> None:
        if ms < self._best.get(point.option, (FAILED,))[0]:
            self._best[point.option] = ms, point.choice

    def _next(self) -> Point | None:
        while self._opening:
            point = self._opening.pop()
            if point not in self.asked:
                return point
        return next((p for n in self._preferred() if (p := self._improve(n)) is not None), None)

    def _preferred(self) -> list[int]:
        ranked = sorted(range(len(self.options)), key=lambda n: self._best.get(n, (FAILED,))[0])
        order = []
        while ranked:
            at = 0
            while at < len(ranked) - 1 and self.random.random() > _PREFERENCE:
                at += 1
            order.append(ranked.pop(at))
        return order

    def _improve(self, number: int) -> Point | None:
        option = self.options[number]
        if not self.left(number):
            return None
        base = self._best[number][1] if number in self._best else option.plainest
        fresh = [[i for i in range(len(c)) if i not in s] for c, s in zip(option.kernels, self._seen[number])]
        if any(fresh):
            kernel = self.random.choices(range(len(fresh)), weights=[len(f) for f in fresh])[0]
            near = [i for i in fresh[kernel] if _distance(option.kernels[kernel][i], option.kernels[kernel][base[kernel]]) == 1]
            index = self.random.choice(near if near and self.random.random() < 0.5 else fresh[kernel])
            point = Point(number, option.changed(base, kernel, index))
            if point not in self.asked:
                return point
        return self.draw(number)


def _distance(a: Params, b: Params) -> int:
    return sum(a[name] != b[name] for name in a)
