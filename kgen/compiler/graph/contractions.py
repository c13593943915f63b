"""Contractions: how operators that sum products count their operations; an operator's record names its own.

    matmul       linear, mm, bmm, einsum, attention       TF32 only where cuBLAS may use it
    convolution  convolutions, transposed ones, RNNs      TF32 where cuDNN may use it, PyTorch's default

Operations count a multiplication and an addition as two, of the operator as it is written: padding, strides and masks
save nothing. All other operators count as none: memory bounds them on every device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable

from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.graph.library_call import Applied, operands

MATMUL, CONVOLUTION = "matmul", "convolution"


@dataclass(frozen=True)
class Contraction:
    """One operator that sums products: its ``kind`` says which of PyTorch's TF32 flags it follows."""

    kind: str
    flops: Callable[[OpGraph, Node], int]


def product(left: int) -> Callable[[OpGraph, Node], int]:
    """Operations of a matrix product. Its left factor is value ``left`` of the node, whose last dimension is summed."""

    def count(graph: OpGraph, node: Node) -> int:
        return 2 * node.type.numel * graph.type(node.values[left]).shape[-1]

    return count


def sum_of_products(graph: OpGraph, node: Node) -> int:
    """``addbmm``: the batch is summed over, too."""
    batch, _, terms = graph.type(node.values[1]).shape
    return 2 * node.type.numel * terms * batch


def einsum(graph: OpGraph, node: Node) -> int:
    """Operations of an equation: all its indices together, for each operand after the first."""
    equation = node.call.args[0] if isinstance(node.call, Applied) and isinstance(node.call.args[0], str) else None
    shapes = [graph.type(name).shape for name in _operands(node)]
    if equation is None or len(shapes) < 2:
        return 0
    extents: dict[str, int] = {}
    for term, shape in zip(equation.replace(" ", "").partition("->")[0].split(","), shapes):
        before, dots, behind = term.partition("...")
        names = [*before, *(f"...{n}" for n in range(len(shape) - len(before) - len(behind), 0, -1)), *behind]
        for name, size in zip(names, shape):
            extents[name] = max(size, extents.get(name, 1))
    return 2 * math.prod(extents.values()) * (len(shapes) - 1)


def _operands(node: Node) -> list[str]:
    """The operands of a call in its order; one that stands twice counts twice."""
    return [node.values[number] for number in operands(node.call)] if node.call is not None else []


def attention(graph: OpGraph, node: Node) -> int:
    """Of ``softmax(q @ k.T) @ v``: both products, masked or not."""
    query, key = (graph.type(name) for name in _operands(node)[:2])
    return 2 * (query.numel + node.type.numel) * key.shape[-2]


def convolution(graph: OpGraph, node: Node) -> int:
    """Weights are (channels out, channels in of a group, *kernel): each output sums all but the first dimension."""
    weight = graph.type(node.values[1])
    return 2 * node.type.numel * (weight.numel // weight.shape[0])


def transposed_convolution(graph: OpGraph, node: Node) -> int:
    """Weights are (channels in, channels out of a group, *kernel): each input adds to all but the first dimension."""
    weight = graph.type(node.values[1])
    return 2 * graph.type(node.values[0]).numel * (weight.numel // weight.shape[0])


def recurrent(graph: OpGraph, node: Node) -> int:
    """Each row of the input, at each step, meets each matrix of the layers once (inputs of inner layers included)."""
    x = graph.type(node.values[0])
    matrices = [graph.type(name) for name in node.values[1:] if graph.is_weight(name)]
    return 2 * (x.numel // x.shape[-1]) * sum(m.numel for m in matrices if len(m.shape) == 2)


def fused_attention(graph: OpGraph, node: Node) -> int:
    """Operations of a layer in one operator: each row meets each matrix once, and each row of its sequence twice."""
    x = graph.type(node.values[0])
    return recurrent(graph, node) + 4 * x.numel * x.shape[-2]


#: The usual ones: a product by its first operand or its second, and convolutions.
PRODUCT, PRODUCT_OF_SECOND = (Contraction(MATMUL, product(left)) for left in (0, 1))
CONVOLVED, TRANSPOSED = Contraction(CONVOLUTION, convolution), Contraction(CONVOLUTION, transposed_convolution)
RECURRENT = Contraction(CONVOLUTION, recurrent)
