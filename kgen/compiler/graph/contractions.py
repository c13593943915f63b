"""Contractions: the operators that sum products, with their operations: one entry each.

    matmul       linear, mm, bmm, einsum, attention       TF32 only where cuBLAS may use it
    convolution  convolutions, transposed ones, RNNs      TF32 where cuDNN may use it, PyTorch's default

Operations count a multiplication and an addition as two, of the operator as it is written: padding, strides and masks
save nothing. All other operators count as none: memory bounds them on every device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable

from kgen.compiler.graph.convolutions import TARGETS
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.graph.library_call import Applied, operands

MATMUL, CONVOLUTION = "matmul", "convolution"


@dataclass(frozen=True)
class Contraction:
    """One operator that sums products: its ``kind`` says which of PyTorch's TF32 flags it follows."""

    kind: str
    flops: Callable[[OpGraph, Node], int]


def flops(graph: OpGraph, node: Node) -> int:
    """Operations of a node: those of its contraction, 0 for any other operator, and where sizes depend on values."""
    found = CONTRACTIONS.get(node.op)
    return found.flops(graph, node) if found and all(map(graph.known_type, node.values)) else 0


def is_convolution(node: Node) -> bool:
    """Whether the node is a convolution, transposed or not."""
    return node.op in _CONVOLUTIONS or node.op in _TRANSPOSED


def is_depthwise(graph: OpGraph, node: Node) -> bool:
    """Whether the node is a convolution, transposed or not, of each channel by itself."""
    if not is_convolution(node):
        return False
    x, weight = (graph.type(name).shape for name in node.values[:2])
    behind = len(weight) - 1  # the channels, and the dimensions that the kernel moves along
    divided = x if node.op in _CONVOLUTIONS else node.type.shape
    return divided[-behind] // weight[1] == x[-behind] > 1  # as many groups as channels


def kernel_size(graph: OpGraph, node: Node) -> tuple[int, ...]:
    """A convolution's kernel, along each dimension that it moves along."""
    return graph.type(node.values[1]).shape[2:]


def _product(left: int) -> Callable[[OpGraph, Node], int]:
    """Of a matrix product whose left factor is the value of that number: its last dimension is summed over."""

    def count(graph: OpGraph, node: Node) -> int:
        return 2 * node.type.numel * graph.type(node.values[left]).shape[-1]

    return count


def _sum_of_products(graph: OpGraph, node: Node) -> int:
    """``addbmm``: the batch is summed over, too."""
    batch, _, terms = graph.type(node.values[1]).shape
    return 2 * node.type.numel * terms * batch


def _einsum(graph: OpGraph, node: Node) -> int:
    """Of an equation: all its indices together, for each operand after the first."""
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


def _attention(graph: OpGraph, node: Node) -> int:
    """Of ``softmax(q @ k.T) @ v``: both products, masked or not."""
    query, key = (graph.type(name) for name in _operands(node)[:2])
    return 2 * (query.numel + node.type.numel) * key.shape[-2]


def _convolution(graph: OpGraph, node: Node) -> int:
    """Weights are (channels out, channels in of a group, *kernel): each output sums all but the first dimension."""
    weight = graph.type(node.values[1])
    return 2 * node.type.numel * (weight.numel // weight.shape[0])


def _transposed(graph: OpGraph, node: Node) -> int:
    """Weights are (channels in, channels out of a group, *kernel): each input adds to all but the first dimension."""
    weight = graph.type(node.values[1])
    return 2 * graph.type(node.values[0]).numel * (weight.numel // weight.shape[0])


def _recurrent(graph: OpGraph, node: Node) -> int:
    """Each row of the input, at each step, meets each matrix of the layers once (inputs of inner layers included)."""
    x = graph.type(node.values[0])
    matrices = [graph.type(name) for name in node.values[1:] if graph.is_weight(name)]
    return 2 * (x.numel // x.shape[-1]) * sum(m.numel for m in matrices if len(m.shape) == 2)


_CONVOLUTIONS, _TRANSPOSED = (
    {name: Contraction(CONVOLUTION, count) for op, targets in TARGETS.items() if ("conv_transpose" in op) is transposed for name in (op, *targets)}
    for transposed, count in ((False, _convolution), (True, _transposed))
)
_CONVOLUTIONS |= {f"conv{d}d_channels_last": Contraction(CONVOLUTION, _convolution) for d in (2, 3)}
_TRANSPOSED |= {f"conv_transpose{d}d_channels_last": Contraction(CONVOLUTION, _transposed) for d in (2, 3)}
_CONVOLUTIONS |= {f"depthwise_conv{d}d": Contraction(CONVOLUTION, _convolution) for d in (1, 2, 3)}

#: Every contraction by the name of its operator: kgen's own where the table of operators has one, else ATen's.
CONTRACTIONS: dict[str, Contraction] = {
    "linear": Contraction(MATMUL, _product(0)),
    "mm": Contraction(MATMUL, _product(0)),
    "bmm": Contraction(MATMUL, _product(0)),
    "matmul": Contraction(MATMUL, _product(0)),
    "mv": Contraction(MATMUL, _product(0)),
    "addmm": Contraction(MATMUL, _product(0)),
    "aten.linear.default": Contraction(MATMUL, _product(0)),
    "aten.mm.default": Contraction(MATMUL, _product(0)),
    "aten.bmm.default": Contraction(MATMUL, _product(0)),
    "aten.matmul.default": Contraction(MATMUL, _product(0)),
    "aten.mv.default": Contraction(MATMUL, _product(0)),
    "aten.dot.default": Contraction(MATMUL, _product(0)),
    "aten.inner.default": Contraction(MATMUL, _product(0)),
    "aten.addmm.default": Contraction(MATMUL, _product(1)),
    "aten.addmv.default": Contraction(MATMUL, _product(1)),
    "aten.baddbmm.default": Contraction(MATMUL, _product(1)),
    "aten.addbmm.default": Contraction(MATMUL, _sum_of_products),
    "aten.einsum.default": Contraction(MATMUL, _einsum),
    "aten.scaled_dot_product_attention.default": Contraction(MATMUL, _attention),
    **_CONVOLUTIONS,
    **_TRANSPOSED,
    **{
        f"aten.{name}": Contraction(CONVOLUTION, _recurrent)
        for name in (
            "lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input",
            "lstm_cell.default", "gru_cell.default", "rnn_tanh_cell.default", "rnn_relu_cell.default",
        )
    },
}  # fmt: skip
