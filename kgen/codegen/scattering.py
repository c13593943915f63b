"""Scatters in C: what results begin as, on every kind of device."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import sympy

from kgen.codegen.c_printer import literal, output_pointer, pointer
from kgen.codegen.symbols import symbol
from kgen.compiler.graph.dtypes import DTYPES, stored
from kgen.compiler.graph.library_call import BatchSize
from kgen.compiler.loops.expr import Const
from kgen.compiler.loops.access import Place
from kgen.compiler.loops.indices import quotient, step_of, symbols_of
from kgen.compiler.loops.program import Map, Program, Scatter

VECTOR_BYTES = 16  # of one store


@dataclass(frozen=True)
class Begun:
    """The memory of one result: its pointer and type, its number of elements in C, and the element ``at`` which it begins.

    ``at`` a multiple of ``width``, so many elements begin as ``vector``.
    """

    out: str
    ctype: str
    elements: str
    value: str
    source: str
    width: int = 1
    vector: str = ""


def begun(program: Program, scatter: Scatter) -> Begun:
    """The beginning of a result. Its elements follow the launcher's extent, or are as many at any batch."""
    extent, elements = program.size, str(scatter.elements)
    if isinstance(scatter.elements, BatchSize):
        assert isinstance(extent, BatchSize), "the loops follow the batch where results do"
        elements = f"{'rows' if isinstance(program.col_size, int) else 'cols'} / {extent.multiple} * {scatter.elements.multiple}"
    ctype, source = DTYPES[scatter.dtype].memory, pointer(scatter.source) if scatter.source else ""
    place = f"at % {scatter.period}" if scatter.period else "at"
    value = f"{source}[{place}]" if source else stored(literal(scatter.start, scatter.dtype), scatter.dtype, scatter.dtype)
    whole = scatter.elements.multiple if isinstance(scatter.elements, BatchSize) else scatter.elements
    width = math.gcd(int(whole), scatter.period, VECTOR_BYTES // DTYPES[scatter.dtype].nbytes)
    vector = f"{symbol('load_vector')}<{width}>({source} + {place})" if source else f"{symbol('fill_vector')}<{ctype}, {width}>({value})"
    return Begun(output_pointer(scatter.tensor), ctype, elements, value, source, width, vector)


@dataclass(frozen=True)
class Owned:
    """Elements of a result that one row of the loops takes all its values into: ``elements`` side by side, and the ``place`` among them."""

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
    """The number that a scatter adds for each element of the loops, so that their count makes the sum; ``None`` where values differ."""
    made = next((s for s in program.steps if isinstance(s, Map) and s.name == scatter.arg), None)
    number = made.expression if made and not made.args else None
    return number if scatter.kind == "sum" and isinstance(number, Const) and math.isfinite(number.value) else None


def taken(scatter: Scatter) -> str:
    """The value that is taken in, as an element of memory."""
    return stored(scatter.arg, scatter.of, scatter.dtype)
