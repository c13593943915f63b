"""Facts about the operator of a node, from its record: in the table of operators, or among those of the library."""

from __future__ import annotations

import hashlib

from kgen.compiler.graph.contractions import CONVOLVED, RECURRENT, TRANSPOSED, Contraction
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.graph.library_call import Applied
from kgen.compiler.operators.library import CHANNELS_LAST, LIBRARY
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.pointwise import FORM
from kgen.compiler.operators.table import OPS


def sums_of(node: Node) -> Contraction | None:
    """How a contraction counts its operations; ``None`` of another operator."""
    found = OPS.get(node.op) or LIBRARY.get(node.op)
    return found.sums if found else None


def flops(graph: OpGraph, node: Node) -> int:
    """Operations of a node: those of its contraction, 0 for any other operator, and where sizes depend on values."""
    found = sums_of(node)
    return found.flops(graph, node) if found and all(map(graph.known_type, node.values)) else 0


def recurrent_steps(graph: OpGraph, node: Node) -> int:
    """Steps that recurrent layers take one after the other; 0 of another operator, and of a single cell.

    The library takes those of one layer after those of another. In a wave, a layer is one step behind the layer below.
    """
    if sums_of(node) is not RECURRENT:
        return 0
    if node.op in OPS:
        return graph.type(node.values[0]).shape[1 if node["batch_first"] else 0] + node["layers"] - 1
    args = node.call.args if isinstance(node.call, Applied) else ()
    if len(args) != 9:
        return 0
    return graph.type(node.values[0]).shape[1 if args[8] else 0] * args[4] * (2 if args[7] else 1)


def is_convolution(node: Node) -> bool:
    """Whether the node is a convolution, transposed or not."""
    return sums_of(node) in (CONVOLVED, TRANSPOSED)


def is_depthwise(graph: OpGraph, node: Node) -> bool:
    """Whether the node is a convolution, transposed or not, of each channel by itself."""
    if not is_convolution(node):
        return False
    x, weight = (graph.type(name).shape for name in node.values[:2])
    behind = len(weight) - 1  # the channels, and the dimensions that the kernel moves along
    divided = x if sums_of(node) == CONVOLVED else node.type.shape
    return divided[-behind] // weight[1] == x[-behind] > 1  # as many groups as channels


def kernel_size(graph: OpGraph, node: Node) -> tuple[int, ...]:
    """A convolution's kernel, along each dimension that it moves along."""
    return graph.type(node.values[1]).shape[2:]


def is_view(node: Node) -> bool:
    """Whether the node moves nothing: its result shares its operand's memory."""
    if node.op in OPS:
        return OPS[node.op].kind in (Kind.IDENTITY, Kind.VIEW)
    return node.op in LIBRARY and LIBRARY[node.op].view


def is_unnamed(node: Node) -> bool:
    """Whether a plan's name leaves the node out."""
    return node.op in LIBRARY and LIBRARY[node.op].unnamed


def label(node: Node) -> str:
    """The node's operator as a plan's name has it."""
    if node.op in OPS:
        form = dict(node.attrs).get(FORM)
        return (OPS[node.op].label or node.op) + (
            f"_{hashlib.sha256(str(form).encode()).hexdigest()[:6]}" if form else ""
        )
    return node.op.split(".")[1].rstrip("_") if "." in node.op else node.op


def aten_name(node: Node) -> str:
    """The node's operator as ATen names it; of several that kgen counts as one, the first."""
    op = OPS.get(node.op.removesuffix(CHANNELS_LAST))
    if op is None:
        return node.op
    return op.targets[0] if op.targets else f"aten.{op.aten}"
