"""Scatters as schedules see them: the elements of a result that a row has to itself, and sums that are counts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import sympy

from kgen.compiler.loops.access import Place
from kgen.compiler.loops.expr import Const
from kgen.compiler.loops.indices import quotient, step_of, symbols_of
from kgen.compiler.loops.program import Map, Program, Scatter


@dataclass(frozen=True)
class Owned:
    """Elements of a result that one row of the loops takes all its values into: ``elements`` side by side, and the
    ``place`` among them."""

    elements: int
    place: Place


def owned(program: Program, scatter: Scatter) -> Owned | None:
    """The part of a result that a row of the program has to itself; ``None`` where rows share elements."""
    elements = quotient(scatter.elements, program.row_size)
    if not isinstance(elements, int) or not program.row_loops:
        return None
    rest, inner = scatter.access.offset, elements
    for loop in reversed(program.row_loops):
        if loop.extent != 1 and step_of(scatter.access.offset, loop.symbol) != inner:
            return None
        rest -= inner * loop.symbol if loop.extent != 1 else 0
        inner *= loop.extent if isinstance(loop.extent, int) else 1
    rest = sympy.expand(rest)
    rows = {loop.symbol for loop in program.row_loops}
    return None if symbols_of(rest) & rows else Owned(elements, replace(scatter.access, offset=rest))


def counted(program: Program, scatter: Scatter) -> Const | None:
    """The number that a scatter adds for each element of the loops, so that their count makes the sum; ``None`` where
    values differ."""
    made = next((s for s in program.steps if isinstance(s, Map) and s.name == scatter.arg), None)
    number = made.expression if made and not made.args else None
    return number if scatter.kind == "sum" and isinstance(number, Const) and math.isfinite(number.value) else None
