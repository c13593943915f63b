"""Scans as schedules see them, alike on every kind of device: what is computed before the scan and what behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable

from kgen.codegen.c_printer import expression
from kgen.compiler.loops.passes import Passes, passes_of
from kgen.compiler.loops.program import Load, Map, Program, Scan
from kgen.compiler.operators.scans import SCANS


@dataclass(frozen=True)
class ScanParts:
    """The element values that lead to the scan, and those that stores need behind it; some are computed on both sides."""

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

    def combined(self, left: str, right: str) -> str:
        """Two values combined, in C."""
        return expression(SCANS[self.scan.kind][0], (left, right), "")

    @property
    def start(self) -> str:
        """The value before the first, in C, without a suffix."""
        return str(SCANS[self.scan.kind][1])
