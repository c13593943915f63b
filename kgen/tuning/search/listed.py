"""Points that are given: no others are asked for."""

from __future__ import annotations

from kgen.tuning.search.points import Point
from kgen.tuning.search.strategy import Strategy


class Listed(Strategy):
    """Proposes its first points alone."""

    name = "listed"
    learns = False

    def _next(self) -> Point | None:
        return None
