"""Points at random: what the other strategies have to beat."""

from __future__ import annotations

from kgen.tuning.search.points import Point
from kgen.tuning.search.strategy import Strategy


class Random(Strategy):
    """Any plan, and any combination of its kernels, each as likely as another."""

    name = "random"
    learns = False

    def _next(self) -> Point | None:
        open_options = self.open_options()
        return self.draw(self.random.choice(open_options)) if open_options else None
