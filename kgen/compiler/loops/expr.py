"""Expressions: what a map of a loop program computes from its operands, as a small closed set of nodes.

    where(x > 0.0, x, x * attr("negative_slope"))        leaky_relu, in the table of operators
    where(x > 0.0, x, x * 0.01)                          the same in a program, where the attribute is a number

Python's operators build them, with :func:`where`, :func:`both`, :func:`either`, :func:`no`, :func:`equal`,
:func:`differ` and :func:`function` for the rest. Nodes are values: equal nodes are one node to a dictionary. A number
of Python becomes a :class:`Const`, ``float32`` of a float and ``int64`` of an integer.

:mod:`kgen.codegen.c_printer` writes them in C; :mod:`kgen.compiler.loops.evaluation` computes them in float64 with
torch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Callable, Iterator, Mapping, Sequence

from kgen.compiler.graph.dtypes import is_float

Number = float | int
_OPERANDS = ("x", "y", "z", "w")


def _signed(sign: str) -> Callable[[Expr, Expr | Number], Expr]:
    """The operator of Python with that sign, as a node."""
    return lambda left, right: Binary(sign, left, expr(right))


def _reflected(sign: str) -> Callable[[Expr, Number], Expr]:
    """The operator of Python with that sign behind a number."""
    return lambda right, left: Binary(sign, expr(left), right)


class Expr:
    """A node. Comparisons of order build nodes; ``==`` compares nodes: see :func:`equal` and :func:`differ`."""

    def __str__(self) -> str:
        """The expression as the table of operators writes it, of ``x``, ``y``, ``z`` and ``w``."""
        return self.of(_OPERANDS)

    def of(self, names: Sequence[str]) -> str:
        """The expression of operands of these names, for people."""
        parts = [part.of(names) for part in self.parts]
        inner = [f"({text})" if isinstance(part, Binary) else text for part, text in zip(self.parts, parts)]
        match self:
            case Arg():
                return names[self.number]
            case Const():
                return str(self.value)
            case Attr():
                return self.name
            case Unary():
                return self.sign + inner[0]
            case Binary():
                return f"{inner[0]} {self.sign} {inner[1]}"
        name = {Where: "where", Columns: "cols"}.get(
            type(self), getattr(self, "function", "").lower() or getattr(self, "dtype", "")
        )
        return f"{name}({', '.join(parts)})" if parts else name

    @property
    def parts(self) -> tuple[Expr, ...]:
        """The nodes that this one is made of."""
        return ()

    def over(self, parts: Sequence[Expr]) -> Expr:
        """This node, made of other parts."""
        return self

    __add__, __sub__, __mul__, __truediv__, __mod__ = map(_signed, ("+", "-", "*", "/", "%"))
    __and__, __or__, __xor__, __lshift__, __rshift__ = map(_signed, ("&", "|", "^", "<<", ">>"))
    __lt__, __le__, __gt__, __ge__ = map(_signed, ("<", "<=", ">", ">="))
    __radd__, __rsub__, __rmul__, __rtruediv__ = map(_reflected, ("+", "-", "*", "/"))

    def __neg__(self) -> Expr:
        return Unary("-", self)

    def __invert__(self) -> Expr:
        return Unary("~", self)


@dataclass(frozen=True)
class Arg(Expr):
    """An operand of a map, or a parameter of a function, by its number."""

    number: int


@dataclass(frozen=True)
class Attr(Expr):
    """An attribute of an operator; a number stands for it in programs. A ``wide`` one is float64."""

    name: str
    wide: bool = False


@dataclass(frozen=True)
class Const(Expr):
    """A number of dtype float32, float64 or int64. ``digits`` are those of a constant that is written with more than it
    needs."""

    value: Number
    dtype: str
    digits: str = ""


@dataclass(frozen=True)
class Columns(Expr):
    """The number of a kernel's columns where they follow the batch, as float32."""


@dataclass(frozen=True)
class Unary(Expr):
    """``-x``, ``~x`` or ``!x``, with C's meaning."""

    sign: str
    x: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.x,)

    def over(self, parts: Sequence[Expr]) -> Expr:
        return Unary(self.sign, *parts)


@dataclass(frozen=True)
class Binary(Expr):
    """Two values and a sign between them, with C's meaning: integers are divided towards zero."""

    sign: str
    left: Expr
    right: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.left, self.right)

    def over(self, parts: Sequence[Expr]) -> Expr:
        return Binary(self.sign, *parts)


@dataclass(frozen=True)
class Where(Expr):
    """One value where a condition holds, else the other. Both may be computed."""

    condition: Expr
    value: Expr
    other: Expr

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.condition, self.value, self.other)

    def over(self, parts: Sequence[Expr]) -> Expr:
        return Where(*parts)


@dataclass(frozen=True)
class Cast(Expr):
    """A value as one of another dtype; without a dtype, of the result's."""

    x: Expr
    dtype: str = ""

    @property
    def parts(self) -> tuple[Expr, ...]:
        return (self.x,)

    def over(self, parts: Sequence[Expr]) -> Expr:
        return Cast(*parts, self.dtype)


@dataclass(frozen=True)
class Call(Expr):
    """A function of values: in capitals, one that every device spells its own way; else one of
    :mod:`kgen.compiler.loops.functions`."""

    function: str
    args: tuple[Expr, ...]

    @property
    def parts(self) -> tuple[Expr, ...]:
        return self.args

    def over(self, parts: Sequence[Expr]) -> Expr:
        return Call(self.function, tuple(parts))


def expr(value: Expr | Number) -> Expr:
    """A node as it is; a number as float32 or, of an integer, as int64."""
    return value if isinstance(value, Expr) else const(value)


def const(value: Number, dtype: str = "int64") -> Const:
    """A number: float32 where it is a float or ``dtype`` is floating, else int64."""
    if not is_float(dtype) and not isinstance(value, float):
        return Const(int(value), "int64")
    value = float(value)
    # Nodes of both zeros would be equal, and nodes of two NaNs would not.
    return Const(
        math.nan if math.isnan(value) else value,
        "float32",
        "-0.0" if value == 0 and math.copysign(1, value) < 0 else "",
    )


def double(value: float) -> Const:
    """A number of float64."""
    return Const(float(value), "float64")


def exactly(digits: str) -> Const:
    """A number of float32 as it is written."""
    return Const(float(digits), "float32", digits)


def attr(name: str) -> Attr:
    """An attribute, which is of the result's dtype."""
    return Attr(name)


def wide(name: str) -> Attr:
    """An attribute, which is float64."""
    return Attr(name, wide=True)


def where(condition: Expr, value: Expr | Number, other: Expr | Number) -> Expr:
    return Where(condition, expr(value), expr(other))


def both(left: Expr, right: Expr) -> Expr:
    return Binary("&&", left, right)


def either(left: Expr, right: Expr) -> Expr:
    return Binary("||", left, right)


def no(x: Expr) -> Expr:
    return Unary("!", x)


def equal(left: Expr, right: Expr | Number) -> Expr:
    return Binary("==", left, expr(right))


def differ(left: Expr, right: Expr | Number) -> Expr:
    return Binary("!=", left, expr(right))


def function(name: str) -> Callable[..., Expr]:
    """The function of that name, which makes calls of it."""
    return lambda *args: Call(name, tuple(map(expr, args)))


def nodes(of: Expr) -> Iterator[Expr]:
    """The node and all nodes that it is made of."""
    yield of
    for part in of.parts:
        yield from nodes(part)


@lru_cache(maxsize=1 << 14)
def calls(of: Expr) -> frozenset[str]:
    """The functions that an expression calls itself."""
    return frozenset(node.function for node in nodes(of) if isinstance(node, Call))


@lru_cache(maxsize=1 << 14)
def has_sign(of: Expr, sign: str) -> bool:
    """Whether an operation with that sign is part of the expression."""
    return any(isinstance(node, Binary) and node.sign == sign for node in nodes(of))


def filled(of: Expr, args: Sequence[Expr], attrs: Mapping[str, Number], dtype: str) -> Expr:
    """The expression with other operands, with numbers for its attributes, and with ``dtype`` as the result's."""
    if isinstance(of, Arg):
        return args[of.number]
    if isinstance(of, Attr):
        return double(attrs[of.name]) if of.wide else const(attrs[of.name], dtype)
    parts = [filled(part, args, attrs, dtype) for part in of.parts]
    if isinstance(of, Cast) and not of.dtype:
        return Cast(*parts, dtype)
    return of.over(parts) if parts else of


#: Operands of an entry's expression.
x, y, z, w = map(Arg, range(4))
#: The operand alone: it changes nothing.
SELF = x
#: A choice between two operands by a third.
CHOICE = Where(Arg(0), Arg(1), Arg(2))
INFINITY, NAN = const(math.inf), const(math.nan)
COLUMNS = Columns()
