"""Search: chooses the next candidate by ask and tell. It knows neither torch nor candidates.

An :class:`Option` is a fusion plan with the allowed combinations of each of its kernels. A :class:`Point` is an option
with one combination for each kernel. Kernels do not influence each other, so each is tuned with the others held. The
space is searched as a sum over kernels, not as a product.

    Strategy    proposes points; each strategy is one file of this package and one entry of STRATEGIES
    Search      a strategy with many points in flight and answers in any order
"""

from __future__ import annotations

from collections import deque
from typing import Sequence

from kgen.tuning.search.additive import Additive
from kgen.tuning.search.assembled import Assembled
from kgen.tuning.search.coordinate import Coordinate
from kgen.tuning.search.exhaustive import Exhaustive
from kgen.tuning.search.points import Choice, KernelSpace, Option, Point, distinct_kernels
from kgen.tuning.search.strategy import Strategy
from kgen.tuning.search.tpe import Tpe
from kgen.tuning.search.uniform import Random

__all__ = [
    "STRATEGIES",
    "TASKS",
    "Choice",
    "KernelSpace",
    "Option",
    "Point",
    "Search",
    "Strategy",
    "chosen",
    "distinct_kernels",
]

#: Every strategy by its name.
STRATEGIES: dict[str, type[Strategy]] = {
    strategy.name: strategy for strategy in (Exhaustive, Random, Coordinate, Additive, Tpe, Assembled)
}

#: The strategy of networks: their kernels are tuned as tasks first.
TASKS = Assembled.name

#: The strategy that needs fewest evaluations; measured in ``benchmarks/results/search_strategies.md``.
_LEARNING = Additive


def chosen(options: Sequence[Option], budget: int) -> str:
    """The name of the default strategy: exhaustive where the budget allows all of it, else the best that learns."""
    return (Exhaustive if Exhaustive.most(options) <= budget else _LEARNING).name


class Search:
    """A strategy with up to ``ahead`` points in flight. Their answers may come in any order.

    The strategy is told in the order asked, and as late as ``ahead`` allows. Its points therefore depend on the answers
    alone, and not on their order. A continued sweep asks for the same points again, with any number of devices.
    """

    def __init__(self, strategy: Strategy, ahead: int) -> None:
        self._strategy, self._ahead = strategy, ahead
        self._open: deque[Point] = deque()  # asked for; the strategy is not told yet
        self._answers: dict[Point, float | None] = {}
        self._refused: set[Point] = set()
        self._inside: dict[Point, Sequence[float | None]] = {}
        self._dry = False  # the strategy needs answers first

    def ask(self) -> Point | None:
        """The next point; ``None`` where the strategy needs more answers first, or has no points left."""
        if (self._dry or len(self._open) >= self._ahead) and not self._told():
            return None
        while (point := self._strategy.ask()) is None:
            self._dry = True
            if not self._told():
                return None
        self._dry = False
        self._open.append(point)
        return point

    def tell(
        self, point: Point, ms: float | None, *, refused: bool = False, inside: Sequence[float | None] = ()
    ) -> None:
        """The answer of a point: milliseconds, or ``None`` where it failed; ``refused`` because it errs too much.

        ``inside`` are the milliseconds of its kernels inside its file, where they are known.
        """
        self._answers[point] = ms
        if refused:
            self._refused.add(point)
        if inside:
            self._inside[point] = inside

    def tell_known(self, point: Point, ms: float | None) -> None:
        """The answer of a point that another strategy asked for."""
        self._strategy.tell(point, ms)

    def _told(self) -> bool:
        """Tell the strategy the answer of the oldest point; returns whether there was one."""
        if not self._open or self._open[0] not in self._answers:
            return False
        point = self._open.popleft()
        self._strategy.tell(point, self._answers.pop(point))
        if point in self._inside:
            self._strategy.see_inside(point, self._inside.pop(point))
        if point in self._refused:
            self._strategy.refuse(point)
        return True
