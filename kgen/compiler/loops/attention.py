"""Attention as a program: the parts of two contractions with a softmax between, for schedules that keep no scores in
memory.

    sums    q . k of each row and column           logits   sums * scale + mask, made by maps of elements
    top     the largest logit of a row             total    the sum of exp(logit - top) of a row
    result  sums over columns of exp(logit - top) * v, times a factor of the row that is made of top and total

The maximum and the sum are found online, so that a row's logits are never all there at once. Logits that lie beyond a
diagonal count as -infinity, and whole tiles of them need not be computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Sequence

import sympy

from kgen.compiler.graph.dtypes import is_float
from kgen.compiler.loops.expr import Arg, Binary, Const, Where, const, where, x, y, z
from kgen.compiler.loops.functions import expbelow, finite_max
from kgen.compiler.loops.program import ELEMENT, ROW, Load, Map, Program, Reduce, Size, Strided

_INFINITE = float("inf")
_MASK = "bool"  #: the dtype of a tensor beside floating ones, that maps of logits read


@dataclass(frozen=True)
class Matrices:
    """Where the matrices of an operand lie in a tensor: the steps between matrices, between lines and between elements.

    ``outer`` are the axes that count matrices, the innermost last; those of step 0 repeat what lies inside of them. The
    extent of the first one does not matter.
    """

    tensor: str
    outer: tuple[tuple[Size, int], ...]
    line: int
    element: int
    offset: int

    @property
    def repeats(self) -> int:
        """How many matrices of the contraction share one of the tensor."""
        found = 1
        for extent, stride in self.outer:
            found *= int(extent) if not stride and isinstance(extent, int) else 1
        return found

    def digits(self, number: str) -> list[tuple[str, Size, int]]:
        """For each axis, its digit of the matrix of that number in C, its extent and its step."""
        found: list[tuple[str, Size, int]] = []
        inner = 1
        for at, (extent, stride) in reversed(list(enumerate(self.outer))):
            text = number if inner == 1 else f"{number} / {inner}"
            found.append((f"{text} % {extent}" if at else text, extent, stride))
            inner *= extent if isinstance(extent, int) else 1
        return found[::-1]

    def place(self, number: str) -> str:
        """The offset in C of the first element of the matrix of that number."""
        terms = [
            f"({digit}) * {stride}ll" if " " in digit else f"{digit} * {stride}ll"
            for digit, _, stride in self.digits(number)
            if stride
        ]
        return " + ".join([*terms, *([str(self.offset)] if self.offset else [])]) or "0"

    def unique_place(self, number: str) -> str:
        """The offset in C of a matrix by its number among those that differ."""
        return replace(self, outer=tuple((extent, stride) for extent, stride in self.outer if stride)).place(number)

    def unique(self, number: str) -> str:
        """The number in C of the matrix among those that differ."""
        found = ""
        for digit, extent, stride in self.digits(number):
            if stride:
                found = f"({found}) * {extent} + {digit}" if found else digit
        return found or "0"


def matrices(tensor: str, lies: Strided | None, lines: int, elements: int, swapped: bool) -> Matrices | None:
    """The matrices of an operand, ``lines`` of so many ``elements``, or the other way round where they lie ``swapped``.

    ``None`` where its axes are not those of matrices.
    """
    sizes = (elements, lines) if swapped else (lines, elements)
    if lies is None:
        line, element = (1, lines) if swapped else (elements, 1)
        return Matrices(tensor, ((0, lines * elements),), line, element, 0)
    axes, found = list(lies.axes), []
    for size in reversed(sizes):
        if not axes:
            return None
        extent, stride = axes.pop()
        if size == 1:
            axes.append((extent, stride))
            found.append(0)
            continue
        if not isinstance(extent, int) or extent % size:
            return None
        found.append(stride)
        if extent > size:
            axes.append((extent // size, stride * size))
    inner, outer = found
    if any(not isinstance(extent, int) and not stride for extent, stride in axes):
        return None
    line, element = (inner, outer) if swapped else (outer, inner)
    return Matrices(tensor, tuple(axes), line, element, lies.offset)


@dataclass(frozen=True)
class Attention:
    """The parts of a program that :func:`attention` recognises.

    ``scale`` is the factor between sums and logits where nothing else stands there. ``diagonal`` says that a row of a
    matrix looks at columns up to its own number and so many more. ``elements`` makes other logits from the sums,
    ``rows`` what these need of whole rows, and ``finish`` the ``factor`` of a row behind its reductions. Where ``none``
    holds, the result of a row is zero.
    """

    program: Program
    scores: Program
    q: Matrices
    k: Matrices
    v: Matrices
    scale: float | None
    diagonal: int | None
    logits: str
    loads: tuple[Load, ...]
    elements: tuple[Map, ...]
    row_loads: tuple[Load, ...]
    rows: tuple[Map, ...]
    top: str
    total: str
    tops: tuple[str, ...]  # other names of the maximum, which is NaN where a logit is
    finish: tuple[Map, ...]
    factor: str
    none: str

    @property
    def sums(self) -> str:
        """The name of q . k of a row and a column."""
        return self.scores.contraction.name

    @property
    def width(self) -> int:
        """Elements of a row of q and of k."""
        return self.scores.contraction.k

    @property
    def queries(self) -> int:
        """Rows of a matrix of q."""
        return self.scores.contraction.group

    @property
    def keys(self) -> int:
        """Rows of a matrix of k and of v."""
        return self.scores.cols

    @property
    def out(self) -> int:
        """Elements of a row of v and of the result."""
        return self.program.cols

    @property
    def formula(self) -> str:
        """The attention with its sizes, for a comment."""
        return f"softmax(q[{self.queries}, {self.width}] . k[{self.keys}, {self.width}]^T) . v[{self.keys}, {self.out}]"

    @property
    def dtype(self) -> str:
        return self.scores.contraction.dtype


def attention(program: Program) -> Attention | None:
    """The program as attention; ``None`` where it is none, or one with parts that schedules of attention do not
    take."""
    known = program.__dict__
    if "_attention" not in known:
        known["_attention"] = _Reader(program).found() if program.contraction and program.contraction.attends else None
    return known["_attention"]


class _Reader:
    """Takes a program apart."""

    def __init__(self, program: Program) -> None:
        self.program, self.scores = program, program.contraction.before
        self.steps = {s.name: s for s in (*self.scores.loads, *self.scores.steps) if not isinstance(s, Reduce)}
        self.reductions = {r.kind: r for r in self.scores.reductions}

    def found(self) -> Attention | None:
        program, scores, outer, inner = self.program, self.scores, self.program.contraction, self.scores.contraction
        if (
            inner.group is None
            or outer.group != inner.group
            or inner.window
            or outer.window
            or not isinstance(scores.col_size, int)
        ):
            return None
        if (
            program.reductions
            or program.moments_of
            or program.scatters
            or program.windows
            or program.scans
            or scores.windows
            or scores.scans
        ):
            return None
        if inner.dtype != outer.dtype or not isinstance(program.col_size, int):
            return None
        if not all(is_float(dtype) or dtype == _MASK for dtype in program.tensor_dtypes.values()):
            return None
        if not all(is_float(store.dtype) for store in program.stores):
            return None
        if any(x.args for x in (*scores.reads, *program.reads)) or any(x.access.mask for x in program.loads):
            return None
        softmax = self._softmax()
        if softmax is None:
            return None
        logits, factor, none = softmax
        q = matrices(inner.x, inner.x_lies, inner.group, inner.k, inner.turned)
        k = matrices(inner.weight, inner.weight_lies, scores.cols, inner.k, inner.transposed)
        v = matrices(outer.weight, outer.weight_lies, scores.cols, program.cols, not outer.transposed)
        if not (q and k and v) or q.repeats > 1:
            return None
        softmax_of = self.reductions["softmax"]
        behind = self._behind_reductions()
        wanted = self._leading_to([logits], frozenset())
        diagonal, inside = self._diagonal(logits)
        scale = self._scale(inside)
        elements = self._leading_to([inside], frozenset())
        finish = self._leading_to([n for n in (factor, none) if n], frozenset(behind))
        if any(name in behind for name in wanted):
            return None

        def of(names: Sequence[str], kind: type, level: str) -> tuple:
            return tuple(
                self.steps[n]
                for n in self.steps
                if n in names and isinstance(self.steps[n], kind) and self.steps[n].level == level
            )

        before = {n for n in (*elements, *finish) if n not in behind}
        return Attention(
            program, scores, q, k, v, scale, diagonal, inside, of(elements, Load, ELEMENT), of(elements, Map, ELEMENT),
            of(before, Load, ROW), of(before, Map, ROW), *softmax_of.names,
            tuple(r.names[0] for r in self.scores.reductions if r is not softmax_of),
            tuple(self.steps[n] for n in self.steps if n in finish and n in behind), factor, none,
        )  # fmt: skip

    def _softmax(self) -> tuple[str, str, str] | None:
        """The logits, the factor of a row, and what says that a row has no result, of what is stored."""
        store, step = self.scores.stores[0], None
        step, none = self.steps.get(store.arg), ""
        if len(self.scores.stores) > 1 or not isinstance(step, Map):
            return None
        if step.expression == where(x, y, z):
            none, zero, soft = step.args
            number = self.steps.get(zero)
            if (
                not isinstance(number, Map)
                or number.expression != const(0.0, "float32")
                or self.steps[none].level != ROW
            ):
                return None
            step = self.steps.get(soft)
        if not isinstance(step, Map) or step.expression != expbelow(x - y) * z:
            return None
        logits, shift, factor = step.args
        of = self.steps.get(shift)
        softmax = self.reductions.get("softmax")
        if (
            softmax is None
            or softmax.args != (logits,)
            or not isinstance(of, Map)
            or (of.expression, of.args) != (finite_max(x), softmax.names[:1])
        ):
            return None
        if any(r.kind not in ("softmax", "max") or r.args != (logits,) for r in self.scores.reductions):
            return None
        return logits, factor, none

    def _behind_reductions(self) -> set[str]:
        """The values that depend on a reduction."""
        made = {name for r in self.scores.reductions for name in r.names}
        found: set[str] = set()
        for step in self.scores.steps:
            if not isinstance(step, Reduce) and (made | found) & set(step.args):
                found.add(step.name)
        return found

    def _leading_to(self, waiting: Sequence[str], but: frozenset[str]) -> set[str]:
        """The steps that values depend on."""
        found, left = set(), list(waiting)
        while left:
            name = left.pop()
            if name in self.steps and name not in found:
                found.add(name)
                left += self.steps[name].args
        return found

    def _scale(self, logits: str) -> float | None:
        """The factor between sums and logits, above zero; ``None`` where logits are made otherwise."""
        sums, step = self.scores.contraction.name, self.steps.get(logits)
        if logits == sums:
            return 1.0
        if (
            not isinstance(step, Map)
            or step.args != (sums,)
            or not isinstance(step.expression, Binary)
            or step.expression.sign != "*"
        ):
            return None
        left, right = step.expression.left, step.expression.right
        value = right.value if isinstance(left, Arg) and isinstance(right, Const) else None
        return float(value) if value is not None and 0 < value < _INFINITE else None

    def _diagonal(self, logits: str) -> tuple[int | None, str]:
        """How far beyond its own number a row looks, and the logits inside of that; none, and the logits, of those
        without a diagonal."""
        step = self.steps.get(logits)
        if not isinstance(step, Map) or not isinstance(step.expression, Where):
            return None, logits
        parts = [self._part(part, step.args) for part in step.expression.parts]
        condition, value, other = parts
        if not isinstance(value, str) or other != -_INFINITE or not isinstance(condition, str):
            return None, logits
        reach = self._reach(condition)
        return (None, logits) if reach is None else (reach, value)

    def _part(self, part: object, args: Sequence[str]) -> str | float | None:
        """An operand of an expression: the name of a value, or a number."""
        if isinstance(part, Const):
            return float(part.value)
        if not isinstance(part, Arg):
            return None
        name = args[part.number]
        step = self.steps.get(name)
        number = isinstance(step, Map) and isinstance(step.expression, Const) and not step.args
        return float(step.expression.value) if number else name

    def _reach(self, condition: str) -> int | None:
        """The greatest difference of column and row at which the condition holds; it holds at all smaller ones."""
        step = self.steps.get(condition)
        if (
            not isinstance(step, Map)
            or not isinstance(step.expression, Binary)
            or step.expression.sign not in (">=", "<=", ">", "<")
        ):
            return None
        sides = [self._part(part, step.args) for part in (step.expression.left, step.expression.right)]
        places = [self._index(side) for side in sides]
        sign = step.expression.sign
        if sign in ("<=", "<"):
            places, sign = places[::-1], ">=" if sign == "<=" else ">"
        if None in places:
            return None
        (row, row_more), (col, col_more) = places
        loops = self.scores.row_loops
        whole = loops and loops[-1].symbol == row and loops[-1].extent == self.scores.contraction.group
        if not whole or [loop.symbol for loop in self.scores.col_loops] != [col]:
            return None
        return row_more - col_more - (sign == ">")

    def _index(self, name: str | float | None) -> tuple[sympy.Symbol, int] | None:
        """A value that is an axis's index and a number more."""
        step = self.steps.get(name) if isinstance(name, str) else None
        if not isinstance(step, Load) or step.tensor or step.access.mask:
            return None
        symbols = list(step.access.offset.free_symbols)
        rest = sympy.expand(step.access.offset - symbols[0]) if len(symbols) == 1 else None
        return (symbols[0], int(rest)) if rest is not None and rest.is_Integer else None
