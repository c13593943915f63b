"""Contractions while they are lowered: the operands that the kernel reads, and the sums as one value.

A contraction takes rows with a matrix, a batch of rows with a batch of matrices, or images with the kernels of a
convolution.
"""

from __future__ import annotations

import sympy

from kgen.compiler.graph.convolutions import Convolution, convolution
from kgen.compiler.graph.graph import Node, NotFusable
from kgen.compiler.loops.expr import Arg
from kgen.compiler.loops.indices import symbols_of
from kgen.compiler.loops.program import Contraction, Map, Program, Strided
from kgen.compiler.lower import attention
from kgen.compiler.lower.builder import ProgramBuilder
from kgen.compiler.operators.op import Index, Kind
from kgen.compiler.operators.table import OPS


def contraction(builder: ProgramBuilder, node: Node, index: Index) -> str:
    """A contraction of rows with a matrix, or a batch of them, and its bias as a map behind it."""
    if not builder.places.keys().isdisjoint(index):
        raise NotFusable(f"the result of {node.name} is read at places that are values")
    x, weight, *bias = node.inputs
    rows, matrix = builder.tensor(x), builder.tensor(weight)
    if len(rows.shape) < 2 or len(matrix.shape) < 2 or not rows.numel or not matrix.numel:
        raise NotFusable(f"{node.name} is no contraction of rows with a matrix")
    if rows.dtype != matrix.dtype:
        raise NotFusable(f"{node.name} has operands of two dtypes")
    window = convolution(builder.graph, node)
    if window and builder.contraction_index not in ((), index):
        raise NotFusable("a kernel reads the sums of a convolution at one place")
    batched = len(matrix.shape) > 2 and not window
    if batched and rows.sizes()[:-2] != matrix.sizes()[:-2]:
        raise NotFusable(f"{node.name} has other matrices than batches of rows")
    if not batched and matrix.batched:
        raise NotFusable(f"{node.name} has a matrix that follows the batch")
    if window and not builder.graph.is_weight(weight):
        raise NotFusable(f"the kernel of {node.name} is no weight")
    if builder.contraction is not None and builder.contraction.name != f"{node.name}_sum":
        raise NotFusable("a kernel stores nothing that is made between two contractions")
    before = attention.scores(builder, x) if builder.strided and _is_made(builder, x) else None
    lies: list[Strided | None] = [None, None]
    if builder.strided:
        (x, turned, lies[0]), (weight, other, lies[1]) = (
            (x, False, None) if before else attention.origin(builder, x),
            attention.origin(builder, weight),
        )
    else:
        (x, turned), (weight, other) = ((name, False) if window else _turned(builder, name) for name in (x, weight))
        before = _before(builder, x, window) if window and x in builder.inside else None
    if weight in builder.inside or (x in builder.inside and before is None):
        raise NotFusable(f"an operand of {node.name} is made in the same kernel")
    builder.contraction_index, builder.last = index, sympy.Add(*index[2:]) if window else index[-1]
    builder.contraction = Contraction(
        f"{node.name}_sum",
        x,
        weight,
        window.taps * window.channels_in if window else rows.shape[-1],
        transposed=(node.op != "linear") != other,
        group=rows.shape[-2] if batched else None,
        matrices=matrix.numel // (matrix.shape[-1] * matrix.shape[-2]),
        window=window,
        turned=turned,
        before=before,
        dtype=rows.dtype,
        x_lies=lies[0],
        weight_lies=lies[1],
    )
    varies = frozenset().union(*(symbols_of(i) for i in index))
    found = builder.step(
        builder.contraction.name, "sums", node.name, (), varies, builder.axes.flat(index, node.type.sizes())
    )
    for value in bias:
        at = (index[1],) if window else builder.broadcast(value, node.type, index)
        found = builder.map(node.name, Arg(0) + Arg(1), [found, builder.value(value, at)])
    return found


def _is_made(builder: ProgramBuilder, x: str) -> bool:
    """Whether the kernel computes the value: it is no view of a tensor."""
    return any(
        OPS[builder.graph.node(n).op].kind is not Kind.VIEW
        for n in attention.leading_to(builder.graph, x, builder.inside)
    )


def _before(builder: ProgramBuilder, x: str, window: Convolution) -> Program | None:
    """The pointwise program that makes the images of a convolution; ``None`` where they are made otherwise."""
    found = builder.lower(builder.graph, attention.leading_to(builder.graph, x, builder.inside), [x])
    pointwise = (
        all(isinstance(step, Map) for step in found.steps) and not found.contraction and found.plain and found.floats
    )
    return found if pointwise and found.cols == window.groups * window.channels_in * window.pixels_in else None


def _turned(builder: ProgramBuilder, name: str) -> tuple[str, bool]:
    """An operand of a contraction, and whether the kernel reads it through a transpose of its last two dimensions."""
    node = builder.graph.node(name) if name in builder.inside else None
    if node is None or node.op != "permute":
        return name, False
    order = node["dims"]
    swapped = order == (*range(len(order) - 2), len(order) - 1, len(order) - 2)
    return (node.values[0], True) if swapped else (name, False)
