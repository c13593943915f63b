"""Random points: the baseline of the other strategies."""

from __future__ import annotations

from kgen.tuning.search.points import Point
from kgen.tuning.search.strategy import Strategy


class Random(Strategy):
    """A random plan with random combinations of its kernels, all equally likely."""

    name = "random"
    learns = False

    def _next(self) -> Point | None:
        open_options = self.open_options()
        return self.draw(self.random.choice(open_options)) if open_options else None
