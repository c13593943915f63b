"""Scatters in CUDA: the statements that take values in, by atomic operations on memory of any kind."""

from __future__ import annotations

from kgen.codegen.scattering import taken
from kgen.codegen.symbols import symbol
from kgen.compiler.loops.program import Scatter

_ATOMIC = {"sum": "atomic_sum", "product": "atomic_product", "max": "atomic_max", "min": "atomic_min"}
_BEGIN = {"max": "begin_max", "min": "begin_min"}  # of floats from a tensor, which may have other forms of NaN


def taken_in(scatter: Scatter, address: str, wide: bool = False) -> str:
    """The statement that takes a value into the element at an address, which is ``wide`` where it is a sum in
    float64."""
    value = taken(scatter)
    if scatter.kind == "last":
        return f"*({address}) = {value};"
    return f"{symbol('atomic_sum_wide' if wide else _ATOMIC[scatter.kind])}({address}, {value});"


def begin(scatter: Scatter) -> str:
    """The function of what an element begins as; empty where that is the element itself."""
    return symbol(_BEGIN[scatter.kind]) if scatter.kind in _BEGIN and scatter.source else ""
