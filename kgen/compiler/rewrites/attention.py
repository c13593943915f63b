"""Rewrites of attention, which the library computes in one call.

    attention_apart     scaled_dot_product_attention(q, k, v) becomes two products and a softmax between them
    masks_as_biases     scaled_dot_product_attention(q, k, v, mask) becomes ...(q, k, v, where(mask, 0, -inf))
    queries_as_rows     queries that kernels make are stored with their heads side by side

Schedules of attention take all of it as one kernel. Elsewhere the products run apart, on tensor cores at float32's
accuracy, and the scores go through memory. That is less than what the products save where heads are wide or rows are
short. The search chooses.

The library makes a bias of a mask itself, in three kernels of each call. Layers share a mask, and a kernel makes the
bias once. Its result lies in memory as the queries do. Where these have their heads side by side, nothing is copied for
the linear layer behind it.
"""

from __future__ import annotations

import math
from dataclasses import replace

from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.graph.library_call import X, rounded, torch_
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS
from kgen.compiler.rewrites.cleanup import decompose
from kgen.compiler.rewrites.view_nodes import in_order, permuted

ATTENTION = "aten.scaled_dot_product_attention.default"


def of_attention(graph: OpGraph) -> frozenset[str]:
    """The calls of attention that have a decomposition."""
    return frozenset(n.name for n in graph.nodes if n.op == ATTENTION and n.parts)


def attention_apart(graph: OpGraph) -> OpGraph:
    """Every call of attention as its decomposition."""
    apart = of_attention(graph)
    return decompose(graph, frozenset(n.name for n in graph.nodes if n.parts) - apart) if apart else graph


def masks_as_biases(graph: OpGraph) -> OpGraph:
    """Every mask of a call of attention as the bias that the library would add to its scores, made once for all
    calls."""
    biases: dict[tuple[str, str], str] = {}
    for call in [n for n in graph.nodes if n.op == ATTENTION]:
        masks = [v for v in call.values if graph.type(v).dtype == "bool" and not graph.is_weight(v)]
        for mask in masks:
            key = mask, call.type.dtype
            if key not in biases:
                biases[key] = graph.fresh(f"{mask}_bias")
                of = replace(graph.type(mask), dtype=call.type.dtype)
                made = Node(
                    biases[key],
                    "where",
                    (mask, 0.0, -math.inf),
                    of,
                    rounded(torch_("where", X, 0.0, -math.inf), of.dtype),
                )
                graph = graph.with_nodes_for(call.name, (made, call))
            call = replace(call, inputs=tuple(biases[key] if v == mask else v for v in call.inputs))
            graph = graph.with_node(call)
    return graph


def queries_as_rows(graph: OpGraph) -> OpGraph:
    """Queries that a map makes, of a call of attention whose result goes on with its heads side by side, stored in that
    order."""
    for call in [n for n in graph.nodes if n.op == ATTENTION and len(n.type.shape) == 4]:
        q = str(call.inputs[0])
        made, rows = (
            graph.producer(q),
            any(n.op == "permute" and n["dims"] == _SIDE_BY_SIDE for n in graph.users(call.name)),
        )
        if not rows or made is None or made.op not in OPS or OPS[made.op].kind is not Kind.POINTWISE:
            continue
        names = [graph.fresh(f"{q}_{part}") for part in ("rows", "stored", "heads")]
        rows_of = permuted(names[0], q, graph.type(q), _SIDE_BY_SIDE)
        stored = in_order(names[1], rows_of)
        nodes = [rows_of, stored, permuted(names[2], stored.name, stored.type, _SIDE_BY_SIDE)]
        graph = graph.with_nodes_for(call.name, (*nodes, replace(call, inputs=(names[2], *call.inputs[1:]))))
    return graph


_SIDE_BY_SIDE = (0, 2, 1, 3)  # heads and rows change places
