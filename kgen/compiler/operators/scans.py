"""Scans: running sums, products and linear recurrences along one dimension, from either end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable

import sympy

from kgen.compiler.graph.graph import Node, NotFusable, Operand
from kgen.compiler.loops.expr import Cast, Expr, equal, nodes, w, where, x, y, z
from kgen.compiler.operators.op import Builder, Captured, Index


@dataclass(frozen=True)
class Running:
    """How the value so far, ``x``, goes on with the terms of a further element, ``y`` and ``z``; and the value before
    the first.

    A scan of one term is associative by itself. One of two terms, a factor and a summand, is by the map that several
    elements are together: ``h -> factor * h + summand``.
    """

    on: Expr
    start: int

    @property
    def of_pairs(self) -> bool:
        return z in nodes(self.on)


SCANS = {"sum": Running(x + y, 0), "prod": Running(x * y, 1), "linear": Running(x * y + z, 0)}


def along(call: Captured) -> dict[str, Any] | None:
    """The dimension of a scan, which does not follow the batch."""
    shape = call.shape("self")
    dim = call.arguments["dim"] % max(len(shape), 1)
    return {"dim": dim} if shape and call.type is not None and not call.type.multiples[dim] else None


def scan(kind: str) -> Callable[[Builder, Node, Index], str]:
    """The lowering of a scan: of its operands at the same index, in reverse where the index runs backwards.

    Running values of integers and truth values are integers.
    """

    def lower(b: Builder, node: Node, index: Index) -> str:
        whole = node.type.dtype == "int64"
        arg = b.value(node.inputs[0], index)
        return _running(
            b,
            node,
            index,
            kind,
            b.map(f"{node.name}_term", Cast(x, "int64"), [arg], "int64") if whole else b.floats(node, arg),
        )

    return lower


def recur(b: Builder, node: Node, index: Index) -> str:
    """The lowering of ``h[t] = factor[t] * h[t - 1] + summand[t]``. A third operand is the state before the first
    step."""
    factor, summand, *initial = node.inputs
    terms = [_term(b, node, operand, index) for operand in (factor, summand)]
    if initial:
        at, dim = index[node["dim"]], node["dim"]
        before = _term(b, node, initial[0], (*index[:dim], *index[dim + 1 :]))
        first = b.map(f"{node.name}_first", equal(x, 0), [b.position(f"{node.name}_step", at, "int64")], "bool")
        terms[1] = b.map(f"{node.name}_summand", where(x, y * z + w, w), [first, terms[0], before, terms[1]])
    return _running(b, node, index, "linear", *terms)


def _term(b: Builder, node: Node, operand: Operand, index: Index) -> str:
    """A value or a number as a term of elements of the result's shape, or of the state's."""
    if not isinstance(operand, str):
        return b.number(f"{node.name}_term", float(operand), "float32")
    sizes = b.graph.type(operand).sizes()
    behind = index[len(index) - len(sizes) :] if sizes else ()
    return b.floats(
        node, b.value(operand, tuple(sympy.Integer(0) if size == 1 else i for size, i in zip(sizes, behind)))
    )


def _running(b: Builder, node: Node, index: Index, kind: str, *terms: str) -> str:
    """The running value of terms that vary along the dimension."""
    size, at = node.type.shape[node["dim"]], index[node["dim"]]
    forward = b.axes.covers(at, size)
    axes = forward or b.axes.covers(size - 1 - at, size) or ()
    varies = frozenset().union(*(b.steps[term].varies for term in terms))
    if not axes or not set(axes) <= varies:
        raise NotFusable(f"{node.name} runs along no axis of its operand")
    dtype = "int64" if node.type.dtype == "int64" else "float32"
    return b.step(node.name, "running", kind, terms, varies, axes=tuple(axes), reverse=forward is None, dtype=dtype)
