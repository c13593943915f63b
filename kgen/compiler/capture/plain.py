"""Graphs as JSON, and back: how a captured problem leaves the process that ran the problem's code.

    Capture ── to_json ──> numbers, strings, lists and objects ── from_json ──> an equal Capture

Nothing in the JSON is executed: classes are named from a closed list.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from kgen.compiler.capture.capture import Capture
from kgen.compiler.graph.graph import Constant, Decomposition, FoldedWeight, Input, Node, OpGraph, Ref, Tensor, Weight
from kgen.compiler.graph.library_call import (
    Applied,
    BatchSize,
    Bound,
    Code,
    Device,
    Each,
    Infix,
    Item,
    Literal,
    Many,
    Member,
    Method,
    Negative,
    Span,
    Value,
)

_CLASSES = {
    kind.__name__: kind
    for kind in (
        Capture,
        Constant,
        Decomposition,
        FoldedWeight,
        Input,
        Node,
        OpGraph,
        Ref,
        Tensor,
        Weight,
        Applied,
        BatchSize,
        Bound,
        Code,
        Device,
        Each,
        Infix,
        Item,
        Literal,
        Many,
        Member,
        Method,
        Negative,
        Span,
        Value,
    )
}


def to_json(value: Any) -> Any:
    """A value of a graph as JSON. Raises ``TypeError`` for a value that no graph holds."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple):
        return [to_json(v) for v in value]
    if isinstance(value, (list, complex, slice)):
        parts = (
            value
            if isinstance(value, list)
            else (value.real, value.imag)
            if isinstance(value, complex)
            else (value.start, value.stop, value.step)
        )
        return {"is": type(value).__name__, "of": [to_json(v) for v in parts]}
    if isinstance(value, dict):
        return {"is": "dict", "of": [[to_json(k), to_json(v)] for k, v in value.items()]}
    if value is Ellipsis:
        return {"is": "Ellipsis"}
    if not is_dataclass(value) or type(value).__name__ not in _CLASSES:
        raise TypeError(f"a graph holds no {type(value).__name__}")
    return {"is": type(value).__name__, "of": [to_json(getattr(value, name)) for name in _names(type(value))]}


def from_json(found: Any) -> Any:
    """The value that :func:`to_json` was given. Raises ``KeyError`` or ``TypeError`` for what it never gives."""
    if isinstance(found, list):
        return tuple(from_json(v) for v in found)
    if not isinstance(found, dict):
        return found
    kind = found["is"]
    if kind == "Ellipsis":
        return ...
    parts = [from_json(v) for v in found["of"]]
    if kind in _PLAIN:
        return _PLAIN[kind](parts)
    made = _CLASSES[kind]
    return made(**dict(zip(_names(made), parts, strict=True)))


_PLAIN = {"list": list, "dict": dict, "complex": lambda parts: complex(*parts), "slice": lambda parts: slice(*parts)}


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
