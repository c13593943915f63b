"""Other forms of a pointwise operator's expression, read from text: ``0.5 * x * (1 + tanh(0.797885 * (x + 0.044715 *
x**3)))``.

A form stands for the whole of a node: its tensors are ``x``, ``y``, ``z`` and ``w``, in order, and all numbers are
float32. The node keeps it as an attribute, which :func:`kgen.compiler.operators.pointwise.map_expression` takes instead
of the operator's own.
"""

from __future__ import annotations

import ast
import math
import operator
from dataclasses import replace
from typing import Any, Callable, Mapping

from kgen.compiler.graph.dtypes import is_float
from kgen.compiler.graph.graph import Node
from kgen.compiler.loops.expr import Expr, const, w, where, x, y, z
from kgen.compiler.loops.functions import (
    absolute,
    cos,
    erf,
    exp,
    expm1,
    inverseroot,
    log,
    log1p,
    nan_max,
    nan_min,
    power,
    rint,
    sin,
    sqrt,
    tanh,
    trunc,
)
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.pointwise import FORM
from kgen.compiler.operators.table import OPS
from kgen.problems.syntax import parse_expression

MOST_CHARACTERS = 500
_TENSORS = {"x": x, "y": y, "z": z, "w": w}
#: Functions by name, with the number of their operands.
_FUNCTIONS: Mapping[str, tuple[Callable[..., Expr], int]] = {
    "abs": (absolute, 1),
    "cos": (cos, 1),
    "erf": (erf, 1),
    "exp": (exp, 1),
    "expm1": (expm1, 1),
    "log": (log, 1),
    "log1p": (log1p, 1),
    "max": (nan_max, 2),
    "min": (nan_min, 2),
    "pow": (power, 2),
    "round": (rint, 1),
    "rsqrt": (inverseroot, 1),
    "sin": (sin, 1),
    "sqrt": (sqrt, 1),
    "tanh": (tanh, 1),
    "trunc": (trunc, 1),
}
_SIGNS: Mapping[type, Callable[[Any, Any], Expr]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_ORDERS: Mapping[type, Callable[[Any, Any], Expr]] = {
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Lt: operator.lt, ast.LtE: operator.le,
}  # fmt: skip
_MOST_POWER = 8


class FormError(ValueError):
    """A text is no form of an operator. The message says why, in one line."""


def formed(node: Node, text: str) -> Node:
    """The node with another form of its expression. Raises :class:`FormError`."""
    if (
        node.op not in OPS
        or OPS[node.op].kind is not Kind.POINTWISE
        or node.type is None
        or not is_float(node.type.dtype)
    ):
        raise FormError(f"{node.name} is no pointwise operator of floating numbers")
    form, known = read(text), [*_TENSORS][: len(node.values)]
    if unknown := sorted(set(_names(text)) & set(_TENSORS) - set(known)):
        raise FormError(f"{node.name} has no operand {unknown[0]}: it has {', '.join(known)}")
    return replace(node, attrs=(*node.attrs, (FORM, form)))


def read(text: str) -> Expr:
    """The expression that a text describes. Raises :class:`FormError`."""
    if len(text) > MOST_CHARACTERS:
        raise FormError(f"an expression has at most {MOST_CHARACTERS} characters")
    try:
        found = _read(parse_expression(text.strip()))
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise FormError(f"{text[:60]!r} is no expression") from error
    if not found.parts and found not in _TENSORS.values():
        raise FormError(f"{text[:60]!r} depends on no operand")
    return found


def _names(text: str) -> list[str]:
    return [node.id for node in ast.walk(parse_expression(text.strip())) if isinstance(node, ast.Name)]


def _read(node: ast.expr) -> Expr:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool) and math.isfinite(value):
            return const(value, "float32")
        case ast.Name(id=name) if name in _TENSORS:
            return _TENSORS[name]
        case ast.UnaryOp(op=ast.USub(), operand=of):
            return -_read(of)
        case ast.BinOp(op=ast.Pow(), left=of, right=ast.Constant(value=int() as times)) if 1 < times <= _MOST_POWER:
            base = found = _read(of)
            for _ in range(times - 1):
                found = found * base
            return found
        case ast.BinOp(op=sign, left=left, right=right) if type(sign) in _SIGNS:
            return _SIGNS[type(sign)](_read(left), _read(right))
        case ast.Call(
            func=ast.Name(id="where"),
            args=[ast.Compare(ops=[sign], left=left, comparators=[right]), value, other],
            keywords=[],
        ) if type(sign) in _ORDERS:
            return where(_ORDERS[type(sign)](_read(left), _read(right)), _read(value), _read(other))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
            name in _FUNCTIONS and len(args) == _FUNCTIONS[name][1]
        ):
            return _FUNCTIONS[name][0](*map(_read, args))
    raise FormError(
        f"{ast.unparse(node)[:60]!r} is not known: there are numbers, x, y, z, w, + - * /, ** up to {_MOST_POWER}, "
        "where(x < y, z, w) with < <= > >=, "
        f"{', '.join(f'{name} of {count}' for name, (_, count) in _FUNCTIONS.items())}"
    )
