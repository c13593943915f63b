"""Scatters as other operators."""

from __future__ import annotations

from dataclasses import replace

from kgen.compiler.graph.graph import Node, OpGraph, Tensor
from kgen.compiler.graph.library_call import X, Y, torch_

#: Scatters along one dimension, whose elements are the third operand.
_SUMS = ("index_add", "scatter_add")


def scatter_to_sum(graph: OpGraph) -> OpGraph:
    """Sums into a dimension of one element as a sum over the operand's dimension: there is one place."""
    for node in graph.nodes:
        if node.op not in _SUMS or node.type.shape[node["dim"]] != 1 or node["kind"] != "sum":
            continue
        own, at, source = node.inputs
        dim, of = node["dim"], graph.type(source)
        if node["each"] and graph.type(at).sizes() != of.sizes():
            continue
        others = [d for d in range(len(of.shape)) if d != dim]
        if any(of.sizes()[d] != node.type.sizes()[d] for d in others):
            continue
        total = Node(
            graph.fresh(f"{node.name}_total"),
            "sum",
            (source,),
            _reduced(of, dim),
            torch_("sum", X, (dim,), keepdim=True),
            (("dims", (dim,)), ("keepdim", True)),
        )
        added = replace(node, op="add", inputs=(own, total.name), call=torch_("add", X, Y), attrs=(("alpha", 1),))
        graph = graph.with_nodes_for(node.name, (total, added))
    return graph.pruned()


def _reduced(of: Tensor, dim: int) -> Tensor:
    """The type of a sum over a dimension that is kept."""
    sizes, multiples = ((*all_[:dim], one, *all_[dim + 1 :]) for all_, one in ((of.shape, 1), (of.multiples, 0)))
    return Tensor(sizes, of.dtype, multiples)
