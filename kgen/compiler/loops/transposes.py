"""Transposes: pointwise programs that read along another axis than they write along.

    out[n, w, c] = relu(x[n, c, w])     along c, which the result has contiguous; across w, which x has contiguous

A schedule for them works on tiles of both axes, so that reads and writes both run along memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kgen.compiler.loops.access import Loop, digits
from kgen.compiler.loops.program import ELEMENT, Load, Map, Program, Store

#: The attributes of a copy that is worth a kernel of its own, which works on tiles: others would move a sector for each
#: element.
IN_TILES = (("in_tiles", True),)
LEAST_EXTENT = 16  # elements of either axis; fewer fill too little of a tile


@dataclass(frozen=True)
class Transpose:
    """The axes of a program: ``along`` is contiguous in what is stored, ``across`` in ``turned``, and ``outer`` are the
    others."""

    along: Loop
    across: Loop
    outer: tuple[Loop, ...]
    turned: tuple[Load, ...]

    def spelled(self, of: Load | Store) -> Load | Store:
        """The access by ``along`` and ``across``, the indices of both axes, and ``outer``, the number of the others."""
        names = {**digits("outer", self.outer), self.along.symbol: "along", self.across.symbol: "across"}
        return replace(of, access=replace(of.access, spelled=tuple(names.items())))

    def count(self, cols: int) -> str:
        """How many pairs of both axes there are, in C, with ``rows`` of ``cols`` elements."""
        elements = int(self.along.extent) * int(self.across.extent)
        return (
            f"rows * {cols // elements}"
            if cols > elements
            else f"rows / {elements // cols}"
            if cols < elements
            else "rows"
        )


def transpose_of(program: Program) -> Transpose | None:
    """The program as a transpose; ``None`` where it is none, or where either axis is short."""
    loops = (*program.row_loops, *program.col_loops)
    if (
        not program.plain
        or program.scatters
        or program.contraction
        or program.moments_of
        or not all(isinstance(s, Map) for s in program.steps)
        or len(loops) < 2
    ):
        return None
    along = loops[-1]
    if any(store.access.offset.coeff(along.symbol) != 1 for store in program.stores):
        return None
    loads = [x for x in program.loads if x.level == ELEMENT and along.symbol in x.access.symbols]
    turned = {}
    for load in loads:
        for loop in loops[:-1]:
            if load.access.offset.coeff(loop.symbol) == 1 != load.access.offset.coeff(along.symbol):
                turned.setdefault(loop, []).append(load)
    if len(turned) != 1:
        return None
    ((across, found),) = turned.items()
    extents = (along.extent, across.extent)
    if not all(isinstance(e, int) and e >= LEAST_EXTENT for e in extents):
        return None
    return Transpose(along, across, tuple(x for x in loops if x not in (along, across)), tuple(found))


def wide(program: Program) -> bool:
    """Whether an offset within both axes and the outer ones may not fit an ``int``."""
    return program.rows * program.cols >= 1 << 31
