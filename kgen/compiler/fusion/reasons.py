"""Reasons: why a node of a plan is a library call, in one line."""

from __future__ import annotations

from kgen.compiler.fusion.costs import is_counter
from kgen.compiler.fusion.values import made_on_the_way
from kgen.compiler.graph.dtypes import is_float
from kgen.compiler.graph.graph import Node, NotFusable, OpGraph
from kgen.compiler.graph.library_call import keywords
from kgen.compiler.lower.lowering import lower
from kgen.compiler.operators.library import CHANNELS_LAST
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import BY_TARGET, OPS
from kgen.compiler.rewrites.recurrence import CALLS as RECURRENT_CALLS, layers_of

#: Why no kernel takes a call of an operator that some kernel computes, by the kind of the operator.
_REFUSED = {
    Kind.POINTWISE: "its arguments are not the tensors and numbers that our kernel takes",
    Kind.INDEXED: "it reads elements in a way that our kernels do not",
    Kind.CONSTANT: "it is made of other values than numbers",
    Kind.REDUCTION: "it reduces no dimension, or one that follows the batch",
    Kind.VIEW: "it takes a part that follows the batch",
    Kind.WINDOW: "its window is no fixed one, or its groups have many channels",
    Kind.SCATTER: "its places follow the batch, or it takes elements in as no kernel does",
    Kind.SCAN: "it runs along the batch, or converts to another dtype",
    Kind.BATCH_NORM: "its momentum is no number",
    Kind.CONTRACTION: "it scales its terms",
    Kind.IDENTITY: "it copies or drops elements, or changes the shape",
}

_NO_FASTER = "plans with a kernel of it are predicted to be no faster"


def why_library(graph: OpGraph, node: Node, *, own: bool, lacks: str = "") -> str:
    """Why the node is left to the library.

    ``own`` says that other plans have a kernel of it, ``lacks`` what the device lacks for further kernels.
    """
    if is_counter(node):
        return "it counts the calls, in one integer"
    op = OPS.get(node.op)
    if op is None:
        return _refused(graph, node)
    if op.kind is not Kind.VIEW and node.name in made_on_the_way(graph):
        return "it is made of numbers alone: kernels make it where they read it, the library makes it for others"
    if op.kind is Kind.IDENTITY:
        return (
            "it changes the order of dimensions in memory"
            if "memory_format" in keywords(node.call)
            else "it returns its operand"
        )
    if op.kind is Kind.VIEW:
        return "it is a view of its operand"
    if op.kind is Kind.BATCH_NORM:
        return "it takes moments over other dimensions than the batch"
    if own:
        return _NO_FASTER
    try:
        lower(graph, (node.name,), (node.name,))
    except NotFusable as error:
        return str(error)
    if not graph.weight_copies and any(map(graph.is_weight, node.values)):
        return "kernels of it would keep a copy of its weight, and --no-weight-copies leaves these out"
    return lacks or "this kind of device has no kernel for it"


def _refused(graph: OpGraph, node: Node) -> str:
    """The reason of an operator that has no entry in the table of operators, or whose entries refuse the call."""
    if node.op.endswith(CHANNELS_LAST):
        return "the library reads its images with channels last, which our kernels of it do not"
    if node.op in RECURRENT_CALLS:
        return (
            _NO_FASTER
            if layers_of(graph, node)
            else "our kernels of recurrent layers are for one dtype, without projections and dropout between layers"
        )
    known = BY_TARGET.get(node.op)
    if known is None:
        return f"no kernel of ours computes {node.op.removesuffix('.default')}"
    types = [node.type, *(graph.known_type(name) for name in node.values)]
    other = sorted({found.dtype for found in types if found and not is_float(found.dtype)})
    if other:
        return f"our kernels are for float32, bfloat16 and float16, it has {' and '.join(other)}"
    named = keywords(node.call) if node.call is not None else frozenset()
    if "memory_format" in named and not (types[0] and types[1] and types[0].dtype != types[1].dtype):
        return "it changes the order of dimensions in memory"
    if "dtype" in named:
        return "it converts to another dtype"
    return _REFUSED[known[-1].kind]
