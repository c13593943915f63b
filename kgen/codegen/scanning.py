"""Scans as schedules see them, alike on every kind of device: what is computed before the scan and what behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Sequence

from kgen.codegen.c_printer import expression
from kgen.codegen.symbols import symbol
from kgen.compiler.loops.passes import Passes, passes_of
from kgen.compiler.loops.program import Load, Map, Program, Scan
from kgen.compiler.operators.scans import SCANS


def _needed(program: Program, maps: Sequence[Map], names: Iterable[str]) -> set[str]:
    """The values that lead to others, not those in front of scans."""
    ends = {s.name for s in program.scans}
    found = set(names) - ends
    for step in reversed(maps):
        found |= set(step.args) - ends if step.name in found else set()
    return found


@dataclass(frozen=True)
class ScanParts:
    """The element values that lead to scans, and those that stores need behind them; some are computed on both
    sides."""

    plan: Passes
    scans: tuple[Scan, ...]
    loads: tuple[Load, ...]
    maps: tuple[Map, ...]
    later_loads: tuple[Load, ...]
    later_maps: tuple[Map, ...]

    @staticmethod
    def of(program: Program) -> ScanParts:
        plan = passes_of(program, keep=True)
        (only,) = plan.passes
        maps = [m for m in only.maps if isinstance(m, Map)]
        before = _needed(program, maps, (a for s in program.scans for a in s.args))
        behind = _needed(program, maps, (s.arg for s in program.stores))
        return ScanParts(
            plan, program.scans,
            tuple(x for x in only.loads if x.name in before), tuple(m for m in maps if m.name in before),
            tuple(x for x in only.loads if x.name in behind), tuple(m for m in maps if m.name in behind),
        )  # fmt: skip

    @property
    def scan(self) -> Scan:
        """The first scan, which the others are like."""
        return self.scans[0]

    @property
    def of_pairs(self) -> bool:
        """Whether an element has a factor and a summand; running values are pairs of them then, but along one
        thread."""
        return SCANS[self.scan.kind].of_pairs

    def on(self, so_far: str, terms: Sequence[str]) -> str:
        """The value so far and the terms of a further element, in C."""
        return expression(SCANS[self.scan.kind].on, (so_far, *terms), "")

    def combined(self, left: str, right: str) -> str:
        """The running values of two parts combined, in C."""
        return f"{symbol('followed_by')}({left}, {right})" if self.of_pairs else self.on(left, (right,))

    @property
    def start(self) -> str:
        """The value before the first, in C, without a suffix."""
        return str(SCANS[self.scan.kind].start)
