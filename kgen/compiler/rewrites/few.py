"""Reductions of few elements, each left to one thread.

softmax over 8 classes of an image     one thread has the classes of a pixel in registers, and all that is made of
them
a sum over 8 corners of a cell         the values of the corners are maps, so that a kernel computes them on the way
"""

from __future__ import annotations

import math
from dataclasses import replace

from kgen.compiler.graph.dtypes import is_float
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.reductions import MOST_FEW, of_few
from kgen.compiler.operators.table import OPS

MOST_GATHERED = 64  # rows of a table; a thread that sums so many has no use for what another one reads


def reduce_few_by_threads(graph: OpGraph) -> OpGraph:
    """Reductions of :data:`MOST_FEW` elements or fewer as maps of these elements; of rows of tables,
    :data:`MOST_GATHERED`."""
    nodes = tuple(replace(n, attrs=(*n.attrs, ("of_few", True))) if _is_of_few(graph, n) else n for n in graph.nodes)
    return replace(graph, nodes=nodes)


def _is_of_few(graph: OpGraph, node: Node) -> bool:
    """Whether the node reduces few elements, and makes more results than a few."""
    if node.op not in OPS or OPS[node.op].kind is not Kind.REDUCTION or of_few(node):
        return False
    source = graph.type(node.inputs[0])
    sizes = [source.sizes()[d] for d in node["dims"]]
    fixed = all(isinstance(size, int) for size in sizes) and (OPS[node.op].whole or is_float(source.dtype))
    most = MOST_GATHERED if _sums_rows(graph, node) else MOST_FEW
    return fixed and 1 < math.prod(sizes) <= most and source.numel > MOST_FEW * math.prod(sizes)


def _sums_rows(graph: OpGraph, node: Node) -> bool:
    """Whether the node reduces rows of a table that are looked up for it alone, along another dimension than the
    last."""
    rows = graph.producer(node.inputs[0])
    return rows is not None and rows.op == "embedding" and len(rows.type.shape) - 1 not in node["dims"]
