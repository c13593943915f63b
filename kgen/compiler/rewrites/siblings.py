"""Products of one value with several weights as one product with all their rows, of which each reader takes its part.

    q = linear(x, a) ; k = linear(x, b)          both = linear(x, cat(a, b)) ; q = both[..., :n] ; k = both[..., n:]
    conv(x, a) and conv(x, b) of one window      the same along channels: branches of an inception block

One kernel reads the value once, and fills a device that a small product leaves idle. Each sum has the terms that it
had.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from kgen.compiler.graph.convolutions import TARGETS
from kgen.compiler.graph.graph import FoldedWeight, Node, OpGraph, Tensor
from kgen.compiler.graph.library_call import Span, Value, X, torch_


def siblings_in_one(graph: OpGraph) -> OpGraph:
    """The graph with each group of linear layers, or of convolutions of one window, that read one value as one of
    them."""
    groups: dict[tuple[Any, ...], list[Node]] = {}
    for node in graph.nodes:
        key = _key(graph, node)
        if key is not None:
            groups.setdefault(key, []).append(node)
    for group in groups.values():
        if len(group) > 1:
            graph = _merged(graph, group)
    return graph


def _key(graph: OpGraph, node: Node) -> tuple[Any, ...] | None:
    """The properties that the nodes of one product share. ``None`` where a node is no product with a weight of its
    own."""
    one_window = node.op in TARGETS and node["groups"] == 1 and not node["transposed"]
    if not (node.op == "linear" or one_window) or len(set(node.inputs)) != len(node.inputs):
        return None
    x, *weights = node.inputs
    if graph.is_weight(x) or not all(graph.is_weight(w) and w not in graph.changed for w in weights):
        return None
    types = [graph.type(w) for w in weights]
    return (
        x,
        node.op,
        node.attributes,
        str(node.call),
        node.type.dtype,
        node.tf32,
        node.products,
        *((t.shape[1:], t.dtype) for t in types),
    )


def _merged(graph: OpGraph, group: list[Node]) -> OpGraph:
    """The graph with one product for the group, where its first node stands, and a part of it for each node."""
    first = group[0]
    dim = 1 if first.op in TARGETS else len(first.type.shape) - 1
    sizes = [node.type.shape[dim] for node in group]
    name, folded = graph.fresh(f"{first.name}_and_siblings"), []
    for at, part in enumerate(("weight", "bias")[: len(first.inputs) - 1], 1):
        sources = tuple(str(node.inputs[at]) for node in group)
        of = graph.type(sources[0])
        joined = torch_("cat", tuple(map(Value, range(len(sources)))))
        folded.append(
            FoldedWeight(graph.fresh(f"{name}_{part}"), Tensor((sum(sizes), *of.shape[1:]), of.dtype), joined, sources)
        )
    shape = (*first.type.shape[:dim], sum(sizes), *first.type.shape[dim + 1 :])
    whole = replace(
        first,
        name=name,
        inputs=(first.inputs[0], *(new.name for new in folded)),
        type=replace(first.type, shape=shape),
        origin="",
    )
    graph = graph.with_folded(*folded)
    for node, start, size in zip(group, itertools.accumulate(sizes, initial=0), sizes):
        cut = X[(*(Span() for _ in range(dim)), Span(start, start + size))]
        attrs = (("dim", dim), ("start", start), ("step", 1))
        part = Node(node.name, "slice", (name,), node.type, cut, attrs)
        graph = graph.with_nodes_for(node.name, (whole, part) if node is first else (part,))
    return graph
