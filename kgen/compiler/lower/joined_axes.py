"""Axes that run through memory one behind the other, joined: two loops become one where no index tells them apart."""

from __future__ import annotations

from typing import Mapping, Sequence

import sympy

from kgen.compiler.loops.access import Loop
from kgen.compiler.loops.indices import Size, at_zero, takes_as_one, times


class JoinedAxes:
    """The axes of a kernel, with neighbours joined.

    An outer axis that is joined is ``lost``: its strides follow from the inner one's. ``indices`` are all that the
    kernel computes, each as a multiple of an expression.
    """

    def __init__(self, extents: Mapping[sympy.Symbol, Size], indices: tuple[tuple[int, sympy.Expr], ...]) -> None:
        self.lost: frozenset[sympy.Symbol] = frozenset()
        self._extents, self._indices = extents, indices
        self._known: dict[int, tuple[sympy.Expr, ...]] = {}  # all indices, by how many axes are joined

    def loops(self, symbols: Sequence[sympy.Symbol]) -> tuple[Loop, ...]:
        """These axes as loops; an outer axis and an inner one are one loop where every index takes them as one
        number."""
        loops: list[Loop] = []
        for symbol in symbols:
            loop = Loop(symbol, self._extents[symbol])
            if loops and self._are_one(loops[-1], loop):
                outer = loops.pop()
                self.lost |= {outer.symbol}
                loop = Loop(symbol, times(outer.extent, loop.extent))
            loops.append(loop)
        return tuple(loops)

    def index(self, expression: sympy.Expr) -> sympy.Expr:
        """The index with joined axes as one."""
        return at_zero(expression, self.lost) if self.lost else expression

    def _are_one(self, outer: Loop, inner: Loop) -> bool:
        if not isinstance(inner.extent, int):
            return False
        return all(takes_as_one(index, outer.symbol, inner.symbol, inner.extent) for index in self._expressions())

    def _expressions(self) -> tuple[sympy.Expr, ...]:
        """All indices, each once, with the axes that are joined by now."""
        if len(self.lost) not in self._known:
            found = (factor * self.index(expression) for factor, expression in self._indices)
            self._known[len(self.lost)] = tuple(dict.fromkeys(found))
        return self._known[len(self.lost)]
