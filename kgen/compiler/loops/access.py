"""Accesses: where a tensor is read or written, by the axes of the loops."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Sequence

import sympy

from kgen.compiler.loops.indices import Size, spell, step_of, symbols_of

MOST_PARTS = 4  # parts of an axis with statements of their own

_INT_MAX = (1 << 31) - 1


@dataclass(frozen=True)
class Loop:
    """One axis with its extent."""

    symbol: sympy.Symbol
    extent: Size


@dataclass(frozen=True)
class Within:
    """The condition ``0 <= index < size`` of a masked load; ``below`` and ``above`` say which half may fail."""

    index: sympy.Expr
    size: Size
    below: bool = True
    above: bool = True


@dataclass(frozen=True)
class Place:
    """Where a contiguous tensor is read or written, by the row and the column of an element.

    ``row_loops`` and ``col_loops`` are the axes that a row and a column number are made of, the innermost last.
    ``mask`` lists the conditions under which the element is there. ``spelled`` gives axes a spelling of their own, for
    schedules that do not count rows and columns.
    """

    offset: sympy.Expr
    row_loops: tuple[Loop, ...]
    col_loops: tuple[Loop, ...]
    mask: tuple[Within, ...] = ()
    spelled: tuple[tuple[sympy.Symbol, str], ...] = ()

    def index(
        self, row: str = "row", col: str = "col", at: Callable[[str], str] = str, beside: str = "", ahead: str = ""
    ) -> str:
        """The offset as a C expression of ``row`` and ``col``; ``at`` spells values of the program that it holds.

        ``beside`` counts rows behind that row along their innermost axis, ``ahead`` columns along theirs.
        """
        names = {s: at(s.name) for s in self.symbols} | self._names(row, col)
        offset = self.offset
        for number, loops in ((row, self.row_loops), (col, self.col_loops)):
            if not any(loop.symbol in dict(self.spelled) for loop in loops):
                offset = _with_whole(offset, number, loops, names)
        for more, number, loops in ((beside, row, self.row_loops), (ahead, col, self.col_loops)):
            inner = (loops[-1].symbol.name, f"whole {number}") if more and loops else ()
            names |= {symbol: f"({text} + {more})" for symbol, text in names.items() if symbol.name in inner}
        return spell(offset, names)

    def condition(self, row: str = "row", col: str = "col") -> str:
        """The mask as a C expression; empty where there is none."""
        names = self._names(row, col)
        parts = []
        for within in self.mask:
            text = spell(within.index, names)
            parts += [f"{text} >= 0"] if within.below else []
            parts += [f"{text} < {within.size}"] if within.above else []
        return " && ".join(parts)

    @property
    def symbols(self) -> frozenset[sympy.Symbol]:
        """The axes that the place depends on."""
        return frozenset().union(symbols_of(self.offset), *(symbols_of(w.index) for w in self.mask))

    @property
    def takes_row(self) -> bool:
        """Whether the place follows from the number of the row."""
        return self._takes(self.row_loops)

    @property
    def takes_col(self) -> bool:
        """Whether the place follows from the number of the column."""
        return self._takes(self.col_loops)

    def _takes(self, loops: Sequence[Loop]) -> bool:
        """Whether the place depends on one of these axes that has no spelling of its own."""
        own = {symbol for symbol, _ in self.spelled}
        return any(loop.symbol not in own and loop.symbol in self.symbols for loop in loops)

    @property
    def full(self) -> bool:
        """Whether the place depends on every axis of the loops; see :attr:`injective`."""
        return {loop.symbol for loop in (*self.row_loops, *self.col_loops)} <= symbols_of(self.offset)

    @property
    def injective(self) -> bool:
        """Whether each element of the loops is sure to have an element of the tensor to itself: each step passes all
        smaller ones.

        A dependence on every axis is not enough: ``row + col`` is one element for many pairs.
        """
        steps = {
            loop: step_of(self.offset, loop.symbol) for loop in (*self.row_loops, *self.col_loops) if loop.extent != 1
        }
        rest = self.offset - sum(step * loop.symbol for loop, step in steps.items())
        if symbols_of(rest) or not all(step.is_Integer for step in steps.values()):
            return False
        reach: int | None = 0  # how far the smaller steps lead; ``None`` is any distance
        for loop, step in sorted(steps.items(), key=lambda pair: abs(pair[1])):
            if reach is None or abs(step) <= reach:
                return False
            reach = reach + int(abs(step)) * (loop.extent - 1) if isinstance(loop.extent, int) else None
        return True

    def mode(self, width: int, along: str = "col") -> str:
        """How ``width`` neighbouring columns, or rows, are read: ``vector``, ``splat`` (all the same element) or
        ``gather``."""
        if width == 1:
            return "splat"
        loops = self.col_loops if along == "col" else self.row_loops
        inner = loops[-1] if loops else None
        if inner is None or (inner.extent if isinstance(inner.extent, int) else inner.extent.multiple) % width:
            return "gather" if self.symbols & {loop.symbol for loop in loops} else "splat"
        if inner.symbol not in self.symbols:
            return "splat"
        return "vector" if self.steps_by_one(inner.symbol, width) else "gather"

    def steps_by_one(self, symbol: sympy.Symbol, width: int) -> bool:
        """Whether ``width`` neighbours along the axis are one vector, from a multiple of ``width`` on."""
        return self._steps_by(symbol, 1, 0, width)

    def _steps_by(self, symbol: sympy.Symbol, count: int, number: int, width: int) -> bool:
        """Whether ``width`` neighbours along the axis are every ``count``-th element of a vector, from the
        ``number``-th on."""
        rest = self.offset - number - count * symbol
        if symbol in symbols_of(rest) or any(symbol in symbols_of(w.index) for w in self.mask):
            return False
        return all(int(term.as_coeff_Mul()[0]) % (count * width) == 0 for term in sympy.Add.make_args(rest))

    @property
    def pairs_alternate(self) -> bool:
        """Whether the elements of two neighbouring rows are an aligned vector in every second column. In the other
        columns, they begin one element behind the start of such a vector."""
        rows, cols = self.row_loops, self.col_loops
        if self.mask or len(cols) != 1 or not rows or not self.symbols <= {loop.symbol for loop in (*rows, *cols)}:
            return False
        return replace(self, offset=self.offset - cols[0].symbol).steps_by_one(rows[-1].symbol, 2)

    def interleaved(self, width: int) -> tuple[int, int]:
        """``(count, number)`` where neighbouring columns are every ``count``-th element of a vector, from the
        ``number``-th on.

        The first numbers of pairs lie so. ``(1, 0)`` where ``width`` columns do not.
        """
        inner = self.col_loops[-1] if self.col_loops else None
        if inner is None or not isinstance(inner.extent, int) or inner.extent % width:
            return 1, 0
        count = step_of(self.offset, inner.symbol)
        if not count.is_Integer or not 1 < count <= MOST_PARTS:
            return 1, 0
        count, number = int(count), int(self.offset.as_coeff_Add()[0] % count)
        return (count, number) if self._steps_by(inner.symbol, count, number, width) else (1, 0)

    def _names(self, row: str, col: str) -> dict[sympy.Symbol, str]:
        fixed = [loop for loop in self.col_loops if isinstance(loop.extent, int)]
        steps = [
            (step_of(self.offset, loop.symbol), loop.extent - 1) for loop in fixed
        ]  # a step with a name is no int in C either
        if sum(abs(int(step)) * last for step, last in steps if step.is_Integer) > _INT_MAX:
            col = f"static_cast<long long>({col.removeprefix('(').removesuffix(')')})"
        return {**digits(row, self.row_loops), **digits(col, self.col_loops), **dict(self.spelled)}


def _with_whole(offset: sympy.Expr, number: str, loops: Sequence[Loop], names: dict[sympy.Symbol, str]) -> sympy.Expr:
    """The offset with the number of a row or column itself, where it takes all digits of it in their order."""
    if len(loops) < 2:
        return offset
    stride, inner, whole = step_of(offset, loops[-1].symbol), 1, sympy.Integer(0)
    for loop in reversed(loops):
        whole += inner * loop.symbol
        inner *= loop.extent if isinstance(loop.extent, int) else 1
    rest = sympy.expand(offset - stride * whole)
    if stride == 0 or symbols_of(rest) & {loop.symbol for loop in loops}:
        return offset
    symbol = sympy.Symbol(f"whole {number}", integer=True)
    names[symbol] = names[loops[-1].symbol].partition(" % ")[0]
    return rest + stride * symbol


def digits(number: str, loops: Sequence[Loop]) -> dict[sympy.Symbol, str]:
    """Each axis as a digit of the mixed radix number that counts them all."""
    found, inner = {}, 1
    for at, loop in reversed(list(enumerate(loops))):
        text = number if inner == 1 else f"{number} / {inner}"
        if at:
            text = f"{text} % {loop.extent}"
        found[loop.symbol] = text
        inner *= loop.extent if isinstance(loop.extent, int) else 1
    return found
