"""Scatters in C: what results begin as, on every kind of device."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kgen.codegen.c_printer import literal, output_pointer, pointer
from kgen.codegen.symbols import symbol
from kgen.compiler.graph.dtypes import DTYPES, stored
from kgen.compiler.graph.library_call import BatchSize
from kgen.compiler.loops.program import Program, Scatter

VECTOR_BYTES = 16  # of one store


WIDE = "reinterpret_cast<double*>(workspace)"  #: in C, the sums of a scatter that is computed in float64


@dataclass(frozen=True)
class Begun:
    """The memory of one result: its pointer and type, its number of elements in C, and the element ``at`` which it
    begins.

    Elements of the ``source`` are ``of`` another type in C where sums are wider. ``at`` a multiple of ``width``, so
    many elements begin as ``vector``.
    """

    out: str
    ctype: str
    elements: str
    value: str
    source: str
    of: str
    width: int = 1
    vector: str = ""


def begun(program: Program, scatter: Scatter, wide: bool = False) -> Begun:
    """The beginning of a result, or of its ``wide`` sums in float64. Its elements follow the launcher's extent, or are
    as many at any batch."""
    extent, elements = program.size, str(scatter.elements)
    if isinstance(scatter.elements, BatchSize):
        assert isinstance(extent, BatchSize), "the loops follow the batch where results do"
        elements = (
            f"{'rows' if isinstance(program.col_size, int) else 'cols'} / {extent.multiple} * "
            f"{scatter.elements.multiple}"
        )
    ctype, source = DTYPES[scatter.dtype].memory, pointer(scatter.source) if scatter.source else ""
    place = f"at % {scatter.period}" if scatter.period else "at"
    value = (
        f"{source}[{place}]" if source else stored(literal(scatter.start, scatter.dtype), scatter.dtype, scatter.dtype)
    )
    whole = scatter.elements.multiple if isinstance(scatter.elements, BatchSize) else scatter.elements
    width = math.gcd(int(whole), scatter.period, VECTOR_BYTES // DTYPES[scatter.dtype].nbytes)
    vector = (
        f"{symbol('load_vector')}<{width}>({source} + {place})"
        if source
        else f"{symbol('fill_vector')}<{ctype}, {width}>({value})"
    )
    if wide:
        width = 1 if source else math.gcd(width, 2)
        return Begun(
            "sums",
            "double",
            elements,
            value,
            source,
            ctype,
            width,
            f"{symbol('fill_vector')}<double, {width}>({value})",
        )
    return Begun(output_pointer(scatter.tensor), ctype, elements, value, source, ctype, width, vector)


def wide_bytes(program: Program, scatter: Scatter) -> str:
    """The float32 elements of a workspace that holds the sums of a scatter in float64, as Python source."""
    elements = scatter.elements
    if not isinstance(elements, BatchSize):
        return str(2 * elements)
    assert isinstance(program.size, BatchSize)
    return f"2 * (rows // {program.size.multiple} * {elements.multiple})"


def taken(scatter: Scatter) -> str:
    """The value that is taken in, as an element of memory."""
    return stored(scatter.arg, scatter.of, scatter.dtype)
