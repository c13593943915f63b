"""Search: which candidate next. Ask and tell, without torch and without knowing what a candidate is.

An :class:`Option` is one way to go (a fusion plan) with the combinations of parameters that each of its kernels may
have; a :class:`Point` is one of them, with a combination for each kernel. Kernels do not influence each other, so a
kernel can be improved with the others held: the space is searched as a sum, not as a product.

    Strategy    proposes points; each kind is one file of this package, and one entry of STRATEGIES
    Search      a strategy as a sweep asks it: many points at once, answers in any order
"""

from __future__ import annotations

from collections import deque
from typing import Sequence

from kgen.tuning.search.additive import Additive
from kgen.tuning.search.coordinate import Coordinate
from kgen.tuning.search.exhaustive import Exhaustive
from kgen.tuning.search.points import Choice, KernelSpace, Option, Point, distinct_kernels
from kgen.tuning.search.strategy import Strategy
from kgen.tuning.search.tpe import Tpe
from kgen.tuning.search.uniform import Random

__all__ = ["STRATEGIES", "Choice", "KernelSpace", "Option", "Point", "Search", "Strategy", "chosen", "distinct_kernels"]

#: Every strategy by its name.
STRATEGIES: dict[str, type[Strategy]] = {strategy.name: strategy for strategy in (Exhaustive, Random, Coordinate, Additive, Tpe)}

#: What learns best (``benchmarks/search_strategies.py``).
_LEARNING = Additive


def chosen(options: Sequence[Option], budget: int) -> str:
    """The name of the strategy where none is asked for: everything that fits the budget, else what learns best."""
    return (Exhaustive if Exhaustive.most(options) <= budget else _LEARNING).name


class Search:
    """A strategy that has up to ``ahead`` points on their way. Their answers may come in any order.

    The strategy is told in the order asked, and as late as ``ahead`` allows. So what it asks for depends on the answers
    alone, and not on which came first: a sweep that was cut off asks for the same points again, with any number of
    devices.
    """

    def __init__(self, strategy: Strategy, ahead: int) -> None:
        self._strategy, self._ahead = strategy, ahead
        self._open: deque[Point] = deque()  # asked for, and the strategy not told yet
        self._answers: dict[Point, float | None] = {}
        self._dry = False  # the strategy wants to be told more first

    def ask(self) -> Point | None:
        """The next point. ``None`` where there is none before more are told of, or, when all are, at all."""
        if (self._dry or len(self._open) >= self._ahead) and not self._told():
            return None
        while (point := self._strategy.ask()) is None:
            self._dry = True
            if not self._told():
                return None
        self._dry = False
        self._open.append(point)
        return point

    def tell(self, point: Point, ms: float | None) -> None:
        """What a point came to: milliseconds, or ``None`` where it failed."""
        self._answers[point] = ms

    def _told(self) -> bool:
        """Tell the strategy of the oldest point; whether it could be."""
        if not self._open or self._open[0] not in self._answers:
            return False
        point = self._open.popleft()
        self._strategy.tell(point, self._answers.pop(point))
        return True
