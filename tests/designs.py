"""A design without templates, for tests of what conducts sweeps."""

from __future__ import annotations

from kgen.candidate import Candidate
from kgen.tuning.design import Design
from kgen.tuning.search import Point


class CheapDesign(Design):
    """Renders in no time."""

    def candidate(self, point: Point) -> Candidate:
        return Candidate(f"x = {point.option}, {point.choice}", self.choices[point.option].name, {}, "cpu", 1)
