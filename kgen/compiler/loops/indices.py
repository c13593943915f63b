"""Index expressions: integer arithmetic over axes, in sympy, with the rules that need the ranges of axes.

    (8*i + j) // 8  ->  i        for j < 8
    (8*i + j) % 8   ->  j        for j < 8
    i // 4, i % 4   ->  i0, i1   once the axis i is split into 4-wide parts

A view of a tensor is a function from the indices of its result to those of its operand. Divisions that no rule removes
stay :class:`FloorDiv` or :class:`Modulo`. C spells them ``/`` and ``%``, since all operands are at least 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Iterable, Mapping, Sequence

import sympy

from kgen.compiler.graph.graph import NotFusable
from kgen.compiler.graph.library_call import BatchSize

Size = int | BatchSize

#: The number of columns, where it is known at run time alone.
COLUMNS = sympy.Symbol("cols", integer=True, positive=True)

_UNBOUNDED = -(1 << 62)  # the least value of what may be below any number


class FloorDiv(sympy.Function):
    """``a // b`` of an expression and a positive integer."""

    nargs = 2
    is_integer = True
    is_nonnegative = True


class Modulo(sympy.Function):
    """``a % b`` of an expression that is at least 0 and a positive integer."""

    nargs = 2
    is_integer = True
    is_nonnegative = True


@dataclass
class Axes:
    """The axes of one program by name, and the arithmetic that their extents allow.

    ``splits`` gives an axis inner extents: ``(4, 2)`` makes three axes of it, of which the last has 2 elements.
    ``places`` are values that indices hold, each with a number that it is below.
    """

    splits: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    extents: dict[sympy.Symbol, Size] = field(default_factory=dict)
    places: dict[sympy.Symbol, int] = field(default_factory=dict)
    _bounds: dict[sympy.Expr, tuple[int, int | None]] = field(default_factory=dict)  # an axis keeps its extent

    def index(self, name: str, size: Size) -> sympy.Expr:
        """An index that runs over ``size`` elements: one axis, or several where the axis is split; 0 for one
        element."""
        if size == 1:
            return sympy.Integer(0)
        inner = self.splits.get(name, ())
        outer = quotient(size, math.prod(inner))
        sizes = [outer, *inner] if outer != 1 else list(inner)
        found, stride = sympy.Integer(0), 1
        for number, extent in reversed(list(enumerate(sizes))):
            symbol = sympy.Symbol(f"{name}#{number}" if len(sizes) > 1 else name, integer=True, nonnegative=True)
            self.extents[symbol] = extent
            found += stride * symbol
            stride *= extent if isinstance(extent, int) else 1
        return found

    @staticmethod
    def constant(value: int) -> sympy.Expr:
        """A fixed index."""
        return sympy.Integer(value)

    def flat(self, indices: Sequence[sympy.Expr], sizes: Sequence[Size]) -> sympy.Expr:
        """The position of an element in a contiguous tensor.

        Raises :class:`NotFusable` where a dimension inside of others follows the batch: strides are numbers.
        """
        return _flat(tuple(indices), tuple(sizes))

    def unflat(self, position: sympy.Expr, sizes: Sequence[Size]) -> list[sympy.Expr]:
        """The indices of the element at a position of a contiguous tensor; raises as :meth:`flat` does."""
        _check_strides(sizes)
        found: list[sympy.Expr] = []
        inner = 1
        for number, size in reversed(list(enumerate(sizes))):
            index = self.divide(position, inner)
            if number and isinstance(size, int):
                index = self.modulo(index, size)
            found.append(sympy.Integer(0) if size == 1 else index)
            inner *= size if isinstance(size, int) else 1
        return found[::-1]

    def divide(self, expression: sympy.Expr, by: int) -> sympy.Expr:
        """``expression // by``."""
        if by == 1:
            return expression
        multiple, rest = self._separate(expression, by)
        low, high = self.bounds(rest)
        if low >= 0 and high is not None and high < by:
            return multiple
        common = math.gcd(by, *(int(t.as_coeff_Mul()[0]) for t in sympy.Add.make_args(rest)))
        rest, by = sympy.expand(rest / common), by // common
        coarse, step = self._without_fine_terms(rest, by)
        if step > 1:
            return multiple + self.divide(coarse, by // step)
        if isinstance(rest, FloorDiv):
            return multiple + self.divide(rest.args[0], int(rest.args[1]) * by)
        return multiple + (rest if by == 1 else FloorDiv(rest, by))

    def modulo(self, expression: sympy.Expr, by: int) -> sympy.Expr:
        """``expression % by``."""
        _, rest = self._separate(expression, by)
        low, high = self.bounds(rest)
        if low >= 0 and high is not None and high < by:
            return rest
        coarse, step = self._without_fine_terms(rest, by)
        if step > 1:
            return sympy.expand(step * self.modulo(coarse, by // step) + rest - step * coarse)
        common = math.gcd(by, *(int(t.as_coeff_Mul()[0]) for t in sympy.Add.make_args(rest)))
        return common * Modulo(sympy.expand(rest / common), by // common) if by != common else sympy.Integer(0)

    def _separate(self, expression: sympy.Expr, by: int) -> tuple[sympy.Expr, sympy.Expr]:
        """``(expression - rest) / by`` and ``rest``: the terms that ``by`` does not divide, and what keeps them at
        least 0."""
        multiple, rest = _separate(expression, by)
        low, _ = self.bounds(rest)
        whole = -(low // by) if _UNBOUNDED < low < 0 else 0
        return multiple - whole, rest + whole * by

    def _without_fine_terms(self, expression: sympy.Expr, by: int) -> tuple[sympy.Expr, int]:
        """``coarse`` and ``step``, where ``expression`` is ``step * coarse`` and terms that never add up to ``step``.

        ``step`` divides ``by``; it is 1 where there is no such step.
        """
        terms = sympy.Add.make_args(expression)
        for step in sorted({abs(int(t.as_coeff_Mul()[0])) for t in terms}, reverse=True):
            if step < 2 or by % step:
                continue
            large = sympy.Add(*(t for t in terms if t.as_coeff_Mul()[0] % step == 0))
            low, high = self.bounds(expression - large)
            if large != expression and low >= 0 and high is not None and high < step:
                return sympy.expand(large / step), step
        return expression, 1

    def bounds(self, expression: sympy.Expr) -> tuple[int, int | None]:
        """The least and the largest value; no largest one where it follows the batch."""
        if expression not in self._bounds:
            self._bounds[expression] = self._found_bounds(expression)
        return self._bounds[expression]

    def _found_bounds(self, expression: sympy.Expr) -> tuple[int, int | None]:
        low, high = 0, 0
        for factor, atom in terms_of(expression):
            least, most = self._atom(atom)
            ends = [factor * least, None if most is None else factor * most]
            if factor < 0:
                ends = [ends[1] if ends[1] is not None else _UNBOUNDED, ends[0]]
            low += ends[0]
            high = None if high is None or ends[1] is None else high + ends[1]
        return low, high

    def _atom(self, atom: sympy.Expr) -> tuple[int, int | None]:
        if atom == 1:
            return 1, 1
        if isinstance(atom, sympy.Symbol):
            extent = self.extents.get(atom, self.places.get(atom))
            return 0, extent - 1 if isinstance(extent, int) else None
        if isinstance(atom, Modulo):
            return 0, int(atom.args[1]) - 1
        if isinstance(atom, FloorDiv):
            _, most = self.bounds(atom.args[0])
            return 0, None if most is None else most // int(atom.args[1])
        return _UNBOUNDED, None

    def covers(self, index: sympy.Expr, size: Size) -> tuple[sympy.Symbol, ...] | None:
        """The axes of which the index is a mixed radix number that takes every value below ``size`` once."""
        if size == 1:
            return () if index == 0 else None
        parts: dict[int, sympy.Symbol] = {}
        for term in sympy.Add.make_args(index):
            coefficient, atom = term.as_coeff_Mul()
            if not isinstance(atom, sympy.Symbol) or atom not in self.extents or int(coefficient) in parts:
                return None
            parts[int(coefficient)] = atom
        stride: Size = 1
        for coefficient in sorted(parts):
            if stride != coefficient:
                return None
            stride = times(stride, self.extents[parts[coefficient]])
        return tuple(parts[c] for c in sorted(parts, reverse=True)) if stride == size else None

    def matched(self, older: sympy.Expr, newer: sympy.Expr) -> dict[sympy.Symbol, sympy.Expr] | None:
        """For each axis of the newer offset alone, the index of the older one that steps alike; ``None`` where there is
        none."""
        symbols = symbols_of(older) | symbols_of(newer)
        return _matched(older, newer, frozenset((s, self.extents[s]) for s in symbols if s in self.extents))

    def _match(self, older: sympy.Expr, newer: sympy.Expr) -> dict[sympy.Symbol, sympy.Expr] | None:
        found: dict[sympy.Symbol, sympy.Expr] = {}
        of_older, of_newer = _addends(older), _addends(newer)
        shared = of_newer.symbols & of_older.symbols
        if of_newer.at_zero(shared) != of_older.at_zero(shared):
            return None
        rest = of_older.without(shared)
        for symbol in of_newer.symbols - shared:
            if symbol not in of_newer.multiples:
                return None
            index = self._along(rest, int(of_newer.multiples[symbol].as_coeff_Mul()[0]), self.extents[symbol])
            if index is None or "#" in symbol.name:
                return None
            found[symbol] = index
        return found

    def _along(self, offset: sympy.Expr, stride: int, extent: Size) -> sympy.Expr | None:
        """The index within ``offset`` that steps by ``stride`` over so many elements."""
        terms = [t for t in sympy.Add.make_args(offset) if t.as_coeff_Mul()[0] % stride == 0]
        for chosen in ([t for t in terms if t.as_coeff_Mul()[0] == stride], terms):
            index = sympy.expand(sympy.Add(*chosen) / stride)
            if self.covers(index, extent):
                return index
        return None

    def wanted_splits(self, expressions: Iterable[sympy.Expr]) -> dict[str, tuple[int, ...]]:
        """Splits of axes that would remove divisions, by the names of the axes."""
        cuts: dict[sympy.Symbol, set[int]] = {}
        for expression in expressions:
            for atom in _divisions(expression):
                inner, by = atom.args[0], int(atom.args[1])
                if isinstance(atom, Modulo) and isinstance(inner, FloorDiv):
                    inner, by = inner.args[0], int(inner.args[1]) * by
                if isinstance(inner, sympy.Symbol) and inner in self.extents:
                    cuts.setdefault(inner, set()).add(by)
        found = {}
        for symbol, places in cuts.items():
            inner = _chain(sorted(places), self.extents[symbol])
            if inner and "#" not in symbol.name:
                found[symbol.name] = inner
        return found


@dataclass(frozen=True)
class _Addends:
    """The addends of an offset: ``multiples`` of axes, by axis, and ``others``, the sum of the rest."""

    symbols: frozenset[sympy.Symbol]
    multiples: Mapping[sympy.Symbol, sympy.Expr]
    others: sympy.Expr

    def at_zero(self, but: frozenset[sympy.Symbol]) -> tuple[list[sympy.Expr | None], sympy.Expr]:
        """The addends where each axis is 0 ``but`` these: their multiples, and the others."""
        zeros = dict.fromkeys(self.others.free_symbols - but, 0)
        return [self.multiples.get(s) for s in but], self.others.subs(zeros) if zeros else self.others

    def without(self, axes: frozenset[sympy.Symbol]) -> sympy.Expr:
        """The sum of the addends but for multiples of these axes."""
        return sympy.Add(self.others, *(term for s, term in self.multiples.items() if s not in axes))


@lru_cache(maxsize=1 << 14)
def _addends(offset: sympy.Expr) -> _Addends:
    """The addends; remembered, since each offset is compared with many."""
    multiples, others = {}, []
    for term in sympy.Add.make_args(offset):
        atom = term.as_coeff_Mul()[1]
        if isinstance(atom, sympy.Symbol):
            multiples[atom] = term
        else:
            others.append(term)
    return _Addends(frozenset(offset.free_symbols), multiples, sympy.Add(*others))


@lru_cache(maxsize=1 << 16)
def _matched(
    older: sympy.Expr, newer: sympy.Expr, extents: frozenset[tuple[sympy.Symbol, Size]]
) -> dict[sympy.Symbol, sympy.Expr] | None:
    """See :meth:`Axes.matched`; remembered, since kernels of more and more nodes read the same tensors."""
    return Axes(extents=dict(extents))._match(older, newer)


@lru_cache(maxsize=1 << 16)
def _flat(indices: tuple[sympy.Expr, ...], sizes: tuple[Size, ...]) -> sympy.Expr:
    """See :meth:`Axes.flat`; remembered, since kernels of more and more nodes read the same tensors."""
    _check_strides(sizes)
    factors: dict[sympy.Expr, int] = {}
    stride = 1
    for index, size in zip(reversed(indices), reversed(sizes)):
        for factor, atom in terms_of(index):
            factors[atom] = factors.get(atom, 0) + stride * factor
        stride *= size if isinstance(size, int) else 1
    found = sympy.Add(*(factor * atom for atom, factor in factors.items()))
    return found if is_linear(found) else _recombined(sympy.expand(found))


def _check_strides(sizes: Sequence[Size]) -> None:
    """Raise where a stride is no number, since a dimension further in follows the batch."""
    outer = [size for size in sizes if size != 1]
    if not all(isinstance(size, int) for size in outer[1:]):
        raise NotFusable("a dimension inside of others follows the batch, and is read through a view")


def _chain(places: Sequence[int], extent: Size) -> tuple[int, ...]:
    """The inner extents of an axis that is cut at these places, as far as each divides the next."""
    sizes, last = [], 1
    for place in places:
        if place % last == 0 and quotient(extent, place) is not None:
            sizes.append(place // last)
            last = place
    return tuple(reversed([s for s in sizes if s > 1]))


@lru_cache(maxsize=1 << 16)
def terms_of(expression: sympy.Expr) -> tuple[tuple[int, sympy.Expr], ...]:
    """The addends of an index, each as its factor and the rest: an axis, a division, or 1."""
    return tuple(
        (int(factor), atom) for factor, atom in (term.as_coeff_Mul() for term in sympy.Add.make_args(expression))
    )


@lru_cache(maxsize=1 << 16)
def is_linear(expression: sympy.Expr) -> bool:
    """Whether an index is a sum of multiples of axes and a number."""
    terms = (term.as_coeff_Mul() for term in sympy.Add.make_args(expression))
    return all(factor.is_Integer and (atom.is_Symbol or atom == 1) for factor, atom in terms)


@lru_cache(maxsize=1 << 16)
def moved(index: sympy.Expr, by: int) -> sympy.Expr:
    """The index and a number; remembered, since each kernel with a concatenation counts from the starts of its
    parts."""
    return index + by


@lru_cache(maxsize=1 << 16)
def at_zero(expression: sympy.Expr, axes: frozenset[sympy.Symbol]) -> sympy.Expr:
    """The index where these axes are 0."""
    if symbols_of(expression).isdisjoint(axes):
        return expression
    if is_linear(expression):
        return sympy.Add(*(term for term in sympy.Add.make_args(expression) if term.as_coeff_Mul()[1] not in axes))
    return expression.xreplace(dict.fromkeys(axes, sympy.Integer(0)))


@lru_cache(maxsize=1 << 16)
def _divisions(expression: sympy.Expr) -> frozenset[sympy.Expr]:
    """The divisions in an index, those of others included."""
    return frozenset() if is_linear(expression) else frozenset(expression.atoms(FloorDiv, Modulo))


@lru_cache(maxsize=1 << 16)
def symbols_of(expression: sympy.Expr) -> frozenset[sympy.Symbol]:
    """The axes, and values, that an index depends on."""
    return frozenset(expression.free_symbols)


@lru_cache(maxsize=1 << 16)
def step_of(expression: sympy.Expr, symbol: sympy.Symbol) -> sympy.Expr:
    """The factor of an axis in an index: its stride."""
    if symbol not in symbols_of(expression):
        return sympy.Integer(0)
    if is_linear(expression):
        return next(sympy.Integer(factor) for factor, atom in terms_of(expression) if atom == symbol)
    return expression.coeff(symbol)


@lru_cache(maxsize=1 << 16)
def takes_as_one(expression: sympy.Expr, outer: sympy.Symbol, inner: sympy.Symbol, extent: int) -> bool:
    """Whether an index reads an outer axis and an inner one of that extent as one number, or neither."""
    a, b = step_of(expression, outer), step_of(expression, inner)
    if a != b * extent or is_linear(expression):
        return bool(a == b * extent)
    return symbols_of(expression - a * outer - b * inner).isdisjoint((outer, inner))


def quotient(size: Size, by: Size) -> Size | None:
    """``size / by`` where that is whole at any batch."""
    a, b = (s.multiple if isinstance(s, BatchSize) else s for s in (size, by))
    if a % b or (isinstance(by, BatchSize) and not isinstance(size, BatchSize)):
        return None
    return BatchSize(a // b) if isinstance(size, BatchSize) and not isinstance(by, BatchSize) else a // b


def times(a: Size, b: Size) -> Size:
    """The product of two sizes; the batch's is its multiple."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    multiple = (a if isinstance(a, int) else a.multiple) * (b if isinstance(b, int) else b.multiple)
    return BatchSize(multiple)


def _separate(expression: sympy.Expr, by: int) -> tuple[sympy.Expr, sympy.Expr]:
    """``(expression - rest) / by`` and ``rest``, the terms that ``by`` does not divide."""
    multiple, rest = [], []
    for term in sympy.Add.make_args(sympy.expand(expression)):
        coefficient, atom = term.as_coeff_Mul()
        whole, left = divmod(int(coefficient), by)
        if atom == 1:
            multiple.append(sympy.Integer(whole))
            rest.append(sympy.Integer(left))
        elif left:
            rest.append(term)
        else:
            multiple.append(whole * atom)
    return sympy.Add(*multiple), sympy.Add(*rest)


def _recombined(expression: sympy.Expr) -> sympy.Expr:
    """``a // k * k + a % k`` as ``a``, and ``a // k % m * k + a % k`` as ``a % (k * m)``."""
    while True:
        terms = {term.as_coeff_Mul()[1]: int(term.as_coeff_Mul()[0]) for term in sympy.Add.make_args(expression)}
        for low, stride in terms.items():
            if not isinstance(low, Modulo):
                continue
            inner, by = low.args[0], int(low.args[1])
            high = next((h for h, s in terms.items() if s == stride * by and _is_quotient(h, inner, by)), None)
            if high is not None:
                whole = inner if isinstance(high, FloorDiv) else Modulo(inner, by * int(high.args[1]))
                expression = sympy.expand(expression - stride * low - stride * by * high + stride * whole)
                break
        else:
            return expression


def _is_quotient(high: sympy.Expr, inner: sympy.Expr, by: int) -> bool:
    """Whether ``high`` is ``inner // by``, or that modulo something."""
    if isinstance(high, Modulo):
        high = high.args[0]
    if by == 1 or not isinstance(high, FloorDiv):
        return False
    return high.args == (inner, by)


def spell(expression: sympy.Expr, names: Mapping[sympy.Symbol, str] = {}) -> str:
    """The expression in C; ``names`` spells its symbols where they are called otherwise there."""
    terms = []
    for term in _in_order(expression):
        coefficient, atom = term.as_coeff_Mul()
        text = _spell_atom(atom, names)
        if atom == 1:
            text = str(abs(int(coefficient)))
        elif abs(coefficient) != 1:
            text = f"{_factor(text)} * {abs(int(coefficient))}"
        terms.append(("-" if coefficient < 0 else "+", text))
    head = ("-" if terms[0][0] == "-" else "") + terms[0][1]
    return head + "".join(f" {sign} {text}" for sign, text in terms[1:])


def _in_order(expression: sympy.Expr) -> list[sympy.Expr]:
    """Addends with the largest strides first, the constant last."""

    def place(term: sympy.Expr) -> tuple[bool, bool, int, str]:
        coefficient, atom = term.as_coeff_Mul()
        return bool(atom == 1), int(coefficient) < 0, -abs(int(coefficient)), str(atom)

    return sorted(sympy.Add.make_args(expression), key=place)


def _spell_atom(atom: sympy.Expr, names: Mapping[sympy.Symbol, str]) -> str:
    if isinstance(atom, sympy.Symbol):
        return names.get(atom, atom.name)
    if isinstance(atom, sympy.Mul):
        return " * ".join(_factor(spell(factor, names)) for factor in atom.args)
    if isinstance(atom, (FloorDiv, Modulo)):
        sign = "/" if isinstance(atom, FloorDiv) else "%"
        return f"{_factor(spell(atom.args[0], names))} {sign} {atom.args[1]}"
    return str(atom)


def _factor(text: str) -> str:
    """The text as an operand of ``*``, ``/`` or ``%``."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"
