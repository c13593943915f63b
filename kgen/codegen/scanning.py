"""Scans as schedules see them, alike on every kind of device: what is computed before the scan and what behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Sequence

from kgen.codegen.c_printer import expression
from kgen.codegen.symbols import symbol
from kgen.compiler.loops.passes import Passes, passes_of
from kgen.compiler.loops.program import Load, Map, Program, Scan
from kgen.compiler.operators.scans import SCANS


@dataclass(frozen=True)
class ScanParts:
    """The element values that lead to the scan, and those that stores need behind it; some are computed on both
    sides."""

    plan: Passes
    scan: Scan
    loads: tuple[Load, ...]
    maps: tuple[Map, ...]
    later_loads: tuple[Load, ...]
    later_maps: tuple[Map, ...]

    @staticmethod
    def of(program: Program) -> ScanParts:
        plan = passes_of(program, keep=True)
        (only,) = plan.passes
        (scan,) = program.scans
        maps = [m for m in only.maps if isinstance(m, Map)]

        def needed(names: Iterable[str]) -> set[str]:
            found = set(names) - {scan.name}
            for step in reversed(maps):
                found |= set(step.args) - {scan.name} if step.name in found else set()
            return found

        before, behind = needed(scan.args), needed(s.arg for s in program.stores)
        return ScanParts(
            plan, scan,
            tuple(x for x in only.loads if x.name in before), tuple(m for m in maps if m.name in before),
            tuple(x for x in only.loads if x.name in behind), tuple(m for m in maps if m.name in behind),
        )  # fmt: skip

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
