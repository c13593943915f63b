"""Every combination of every kernel: the sum of their spaces, not the product."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Iterable

from kgen.tuning.search.points import Choice, KernelSpace, Option, Point, distinct_kernels
from kgen.tuning.search.strategy import FAILED, Strategy


@dataclass(frozen=True)
class _Tuning:
    """A kernel that is tuned alone, in one option with the other kernels as in ``base``."""

    option: int
    kernel: int
    base: Choice


class Exhaustive(Strategy):
    """Every combination of every kernel with the others held, then all kernels at their best.

    opening    every plan with each kernel's first combination
    tuning     each kernel in the first plan that has it: every combination, with the other kernels held
    verifying  each plan with each kernel at its best, for each value of a common parameter
    """

    name = "exhaustive"
    learns = False

    def __init__(self, options: Sequence[Option], seed: int = 0, first: Iterable[Point] = ()) -> None:
        super().__init__(options, seed, first)
        self._tunings: dict[KernelSpace, _Tuning] = {}
        self._wanted = self._walk()

    @classmethod
    def most(cls, options: Sequence[Option]) -> int:
        verified = sum(len(option.values) for option in options if option.kernels)
        return len(options) + sum(map(len, distinct_kernels(options))) + verified

    def _next(self) -> Point | None:
        """The next new point of the walk; ``None`` where the walk waits for answers, or is over."""
        for point in self._wanted:
            if point is None or point not in self.asked:
                return point
        return None

    def _walk(self) -> Iterator[Point | None]:
        """Every point in order; yields ``None`` while answers are missing."""
        opened = {n: o.plainest for n, o in enumerate(self.options) if o.plainest is not None}
        yield from (Point(number, choice) for number, choice in opened.items())
        for number, plainest in opened.items():
            for k, kernel in enumerate(self.options[number].kernels):
                if kernel not in self._tunings:
                    tuning = self._tunings[kernel] = _Tuning(number, k, self._best(number) or plainest)
                    yield from (self._point(tuning, index) for index in range(len(kernel)))
        while self.waiting:
            yield None
        for number in opened:
            option = self.options[number]
            yield from (
                Point(
                    number,
                    tuple(self._tuned(kernel, option.indices(k, value)) for k, kernel in enumerate(option.kernels)),
                )
                for value in option.values
            )

    def _best(self, number: int) -> Choice | None:
        """The fastest choice of an option so far; ``None`` without a right one."""
        of = [(ms, point.choice) for point, ms in self.told.items() if point.option == number and ms < FAILED]
        return min(of, default=(FAILED, None))[1]

    def _point(self, tuning: _Tuning, index: int) -> Point:
        return Point(tuning.option, self.options[tuning.option].changed(tuning.base, tuning.kernel, index))

    def _tuned(self, kernel: KernelSpace, indices: Sequence[int]) -> int:
        """The best of these combinations of a kernel, by the times of its tuning."""
        return min(indices, key=lambda index: self.told.get(self._point(self._tunings[kernel], index), FAILED))
