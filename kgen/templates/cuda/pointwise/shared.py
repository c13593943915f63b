"""Axes that most values of a pointwise program are the same along, as the channels of images that one grid samples.

grid_sample of 32 channels       places and weights of a pixel's neighbours hold for all channels
resizing                         places and weights of a row and of a column hold for all channels
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kgen.compiler.loops.program import ELEMENT, Load, Map, Program

WORTH = 8  # values that each element has in common with its neighbours along an axis; fewer cost less than their loop
USUAL, MOST_ALONG = 8, 32  # elements that a thread takes: the loads of all of them are in flight together


@dataclass(frozen=True)
class SharedAxis:
    """An axis of the columns, of ``extent`` elements that lie ``inner`` columns apart, and the values that are the same
    along it."""

    extent: int
    inner: int
    values: frozenset[str]

    @property
    def parts(self) -> tuple[int, ...]:
        """How many elements a thread may take, the likeliest first."""
        whole = [n for n in range(2, min(self.extent, MOST_ALONG) + 1) if self.extent % n == 0]
        return tuple(sorted(whole, key=lambda n: abs(math.log2(n / USUAL))))[:4]


def shared_axis(program: Program) -> SharedAxis | None:
    """The axis along which the most values are the same; ``None`` where :data:`WORTH` values are the same along none.

    The innermost axis is left to neighbouring threads.
    """
    if not isinstance(program.col_size, int) or program.wide:
        return None
    found, inner = [], 1
    for at, loop in reversed(list(enumerate(program.col_loops))):
        extent = loop.extent
        if not isinstance(extent, int):
            return None
        if at < len(program.col_loops) - 1:
            found.append(SharedAxis(extent, inner, _same_along(program, at)))
        inner *= extent
    made = {step.name for step in program.steps if isinstance(step, (Map, Load)) and step.level == ELEMENT}
    worth = [axis for axis in found if len(axis.values & made) >= WORTH and axis.parts]
    return max(worth, key=lambda axis: len(axis.values & made), default=None)


def _same_along(program: Program, at: int) -> frozenset[str]:
    """The values of elements that do not vary along an axis of the columns."""
    symbol, same = program.col_loops[at].symbol, set()
    rows = {x.name for x in (*program.loads, *program.steps) if isinstance(x, (Load, Map)) and x.level != ELEMENT}
    for step in (*program.loads, *program.steps):
        if not isinstance(step, (Load, Map)) or step.name in rows:
            continue
        own = isinstance(step, Load) and symbol in step.access.symbols
        if not own and same | rows >= set(step.args):
            same.add(step.name)
    return frozenset(same)
