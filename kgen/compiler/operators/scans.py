"""Scans: running sums and products along one dimension, from either end."""

from __future__ import annotations

from typing import Any, Callable

from kgen.compiler.graph.graph import Node, NotFusable
from kgen.compiler.loops.expr import Cast, x, y
from kgen.compiler.operators.op import Builder, Captured, Index

#: How scans combine the value so far, ``x``, with a further one, ``y``; and the value before the first.
SCANS = {"sum": (x + y, 0), "prod": (x * y, 1)}


def along(call: Captured) -> dict[str, Any] | None:
    """The dimension of a scan, which does not follow the batch."""
    shape = call.shape("self")
    dim = call.arguments["dim"] % max(len(shape), 1)
    return {"dim": dim} if shape and call.type is not None and not call.type.multiples[dim] else None


def scan(kind: str) -> Callable[[Builder, Node, Index], str]:
    """The lowering of a scan: of its operand at the same index, in reverse where the index runs backwards.

    Running values of integers and truth values are integers.
    """

    def lower(b: Builder, node: Node, index: Index) -> str:
        size, at = node.type.shape[node["dim"]], index[node["dim"]]
        forward = b.axes.covers(at, size)
        axes = forward or b.axes.covers(size - 1 - at, size) or ()
        arg, whole = b.value(node.inputs[0], index), node.type.dtype == "int64"
        arg = b.map(f"{node.name}_term", Cast(x, "int64"), [arg], "int64") if whole else b.floats(node, arg)
        if not axes or not set(axes) <= b.steps[arg].varies:
            raise NotFusable(f"{node.name} runs along no axis of its operand")
        return b.step(node.name, "running", kind, (arg,), b.steps[arg].varies, axes=tuple(axes), reverse=forward is None, dtype="int64" if whole else "float32")

    return lower
