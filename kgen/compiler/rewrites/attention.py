"""Rewrites of attention, which the library computes in one call.

    attention_apart     scaled_dot_product_attention(q, k, v) becomes two products and a softmax between them

Schedules of attention take all of it as one kernel. Elsewhere the products run apart, on tensor cores at float32's accuracy, and the
scores go through memory. That is less than what the products save where heads are wide or rows are short. The search chooses.
"""

from __future__ import annotations

from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.rewrites.cleanup import decompose

ATTENTION = "aten.scaled_dot_product_attention.default"


def of_attention(graph: OpGraph) -> frozenset[str]:
    """The calls of attention that have a decomposition."""
    return frozenset(n.name for n in graph.nodes if n.op == ATTENTION and n.parts)


def attention_apart(graph: OpGraph) -> OpGraph:
    """Every call of attention as its decomposition."""
    apart = of_attention(graph)
    return decompose(graph, frozenset(n.name for n in graph.nodes if n.parts) - apart) if apart else graph
