"""Ranges of a program's values, as far as indices and constants tell, and choices that they decide.

    i % 128 - 1                                       from -1 to 126
    where(x < 0, 0, where(x > 127, 127, x)) of it     where(x < 0, 0, x), from 0 to 126
    the place of that among 128 elements              itself: it needs no check

A range of a float says, too, that it is a number.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Mapping, Sequence

from kgen.compiler.graph.dtypes import is_float
from kgen.compiler.loops.expr import Arg, Binary, Call, Cast, Const, Expr, Where, nodes

if TYPE_CHECKING:
    from kgen.compiler.lower.builder import ProgramBuilder

Range = tuple[float, float]

ANY: Range = (-math.inf, math.inf)
#: Above any number of a range, by dtype: what the dtype, and a float of Python, hold exactly.
_MOST = {"int64": 1 << 53, "int32": 1 << 31, "float32": 1 << 24}
_ROUNDED = 1e-6  # relative error of a float32 that a few operations made

_HOLDS = {
    "<": lambda a, b: True if a[1] < b[0] else False if a[0] >= b[1] else None,
    "<=": lambda a, b: True if a[1] <= b[0] else False if a[0] > b[1] else None,
    ">": lambda a, b: True if a[0] > b[1] else False if a[1] <= b[0] else None,
    ">=": lambda a, b: True if a[0] >= b[1] else False if a[1] < b[0] else None,
}
_OTHERWISE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def decided(builder: "ProgramBuilder", expression: Expr, args: Sequence[str]) -> Expr:
    """The expression of these operands without the choices whose conditions always hold, or never do."""
    if not any(isinstance(node, Where) for node in nodes(expression)):
        return expression
    operands = _operands(builder, args)
    return expression if all(known == ANY for known in operands.values()) else _decided(expression, operands)


def range_of(builder: "ProgramBuilder", name: str) -> Range:
    """The least and the largest number that a value may be; infinite where nothing tells."""
    if name not in builder.ranges:
        step, found = builder.steps[name], ANY
        if step.kind == "load" and not step.text and not step.mask and step.dtype != "bool":
            low, high = builder.axes.bounds(step.offset)
            found = (low, math.inf if high is None else high)
        elif step.kind == "map" and step.expr is not None:
            found = _range(step.expr, _operands(builder, step.args), is_float(step.dtype))
        builder.ranges[name] = found if _is_held(found, step.dtype) else ANY
    return builder.ranges[name]


def _operands(builder: "ProgramBuilder", args: Sequence[str]) -> dict[Expr, Range]:
    return {Arg(number): range_of(builder, name) for number, name in enumerate(args)}


def _is_held(of: Range, dtype: str) -> bool:
    """Whether a value of that dtype has the range: integers neither wrap around nor are rounded."""
    return dtype in _MOST and all(math.isinf(end) and dtype == "int64" or abs(end) < _MOST[dtype] for end in of)


def _decided(of: Expr, operands: Mapping[Expr, Range]) -> Expr:
    if not isinstance(of, Where):
        return of.over([_decided(part, operands) for part in of.parts]) if of.parts else of
    holds = _holds(of.condition, operands)
    if holds is not None:
        return _decided(of.value if holds else of.other, operands)
    return Where(
        of.condition,
        _decided(of.value, _narrowed(of.condition, operands, True)),
        _decided(of.other, _narrowed(of.condition, operands, False)),
    )


def _holds(condition: Expr, operands: Mapping[Expr, Range]) -> bool | None:
    """Whether a comparison of numbers always holds, or never; ``None`` where it may."""
    if not isinstance(condition, Binary) or condition.sign not in _HOLDS:
        return None
    left, right = (_range(part, operands, False) for part in condition.parts)
    return None if ANY in (left, right) else _HOLDS[condition.sign](left, right)


def _narrowed(condition: Expr, operands: Mapping[Expr, Range], holds: bool) -> Mapping[Expr, Range]:
    """The ranges where a comparison of an operand with a number holds, or does not; of operands that are numbers."""
    if not isinstance(condition, Binary) or condition.sign not in _HOLDS or not isinstance(condition.right, Const):
        return operands
    known, number = operands.get(condition.left, ANY), condition.right.value
    if known == ANY:
        return operands
    sign = condition.sign if holds else _OTHERWISE[condition.sign]
    step = 0 if condition.right.dtype == "float32" else 1
    low, high = known
    low = max(low, number + step * (sign == ">")) if sign in (">", ">=") else low
    high = min(high, number - step * (sign == "<")) if sign in ("<", "<=") else high
    return {**operands, condition.left: (low, high)}


def _range(of: Expr, operands: Mapping[Expr, Range], rounds: bool) -> Range:
    """The range of an expression of operands with these ranges; results are rounded to float32 where it ``rounds``."""
    if of in operands:
        return operands[of]
    match of:
        case Const():
            return (of.value, of.value) if math.isfinite(of.value) else ANY
        case Where():
            holds = _holds(of.condition, operands)
            ways = [(of.value, True), (of.other, False)]
            found = [
                _range(way, _narrowed(of.condition, operands, of_way), rounds)
                for way, of_way in ways
                if holds in (None, of_way)
            ]
            return min(low for low, _ in found), max(high for _, high in found)
        case Cast():
            inner, to = _range(of.x, operands, rounds), of.dtype or ("float32" if rounds else "int64")
            if not _is_held(inner, to):
                return ANY
            return (
                inner
                if to == "float32" or math.inf in map(abs, inner)
                else (math.trunc(inner[0]), math.trunc(inner[1]))
            )
        case Binary() if of.sign in ("+", "-", "*"):
            return _combined(of.sign, *(_range(part, operands, rounds) for part in of.parts), rounds)
        case Call():
            return _of_call(of, [_range(part, operands, rounds) for part in of.args])
    return ANY


def _combined(sign: str, left: Range, right: Range, rounds: bool) -> Range:
    if ANY in (left, right):
        return ANY
    right = (-right[1], -right[0]) if sign == "-" else right
    ends = (
        [left[0] + right[0], left[1] + right[1]]
        if sign != "*"
        else [a * b for a in left for b in right if not (0 in (a, b) and math.inf in map(abs, (a, b)))]
    )
    low, high = min(ends), max(ends)
    exact = not rounds and all(math.isinf(end) or float(end).is_integer() for end in (low, high))
    return (low, high) if exact else (low - _ROUNDED * abs(low), high + _ROUNDED * abs(high))


def _of_call(of: Call, args: Sequence[Range]) -> Range:
    """The range of a call; the greater and the smaller of two numbers are numbers where one of them is."""
    first = args[0] if args else ANY
    if of.function == "FLOOR" and all(map(math.isfinite, first)):
        return math.floor(first[0]), math.floor(first[1])
    if of.function == "clamp_to" and ANY not in args:
        (low, _), (_, high) = args[1], args[2]
        return min(max(first[0], low), high), max(min(first[1], high), low)
    if of.function in ("FMAX", "FMIN") and any(end != ANY for end in args):
        known = [end for end in args if end != ANY]
        if of.function == "FMAX":
            return max(low for low, _ in known), max(high for _, high in args)
        return min(low for low, _ in args), min(high for _, high in known)
    return ANY
