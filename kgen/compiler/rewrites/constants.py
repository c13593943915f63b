"""Tables that depend on no input: masks, positions, and what weights have at positions. They are made once, with the weights.

    cos(arange(64) * inv_freq)            a kept tensor, made again when ``inv_freq`` changes
    embedding(bias, buckets(arange(64)))  the same
    arange(64) >= arange(64)[:, None]     a kept tensor where the library reads it; kernels compute it where they read it
"""

from __future__ import annotations

from dataclasses import replace

from kgen.compiler.graph.graph import FoldedWeight, Node, OpGraph
from kgen.compiler.graph.library_call import BatchSize, Device, inner, written
from kgen.compiler.operators.facts import is_view
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS

#: Operators whose values follow from their operands alone. Random ones are in none of these kinds.
_PURE = frozenset({Kind.CONSTANT, Kind.POINTWISE, Kind.VIEW, Kind.INDEXED, Kind.REDUCTION, Kind.SCAN})
#: Bytes of a kept table; a larger one is made in each call, as PyTorch does.
_MOST_BYTES = 1 << 28


def keep_tables(graph: OpGraph) -> OpGraph:
    """Keep values that depend on no input, and that kernels do not make on the way where they read them."""
    anchor = next((w.name for w in graph.weights if w.name not in graph.changed), None)
    if anchor is None:
        return graph
    known = _tables(graph)
    kept = [name for name in known if _is_worth(graph, known, name)]
    needed: set[str] = set()
    for node in reversed(graph.nodes):
        if node.name in kept or node.name in needed:
            needed.update((node.name, *(value for value in node.values if value in known)))
    if not kept:
        return graph
    # Nodes in the middle of a table stay for others that read them, and have another name in it.
    names = {name: name if name in kept else graph.fresh(f"{name}_table") for name in needed}
    folded = tuple(_folded(graph.node(name), anchor, names) for name in known if name in needed)
    nodes = tuple(n for n in graph.nodes if n.name not in kept)
    return replace(graph, nodes=nodes, folded=graph.folded + folded).pruned()


def _tables(graph: OpGraph) -> dict[str, bool]:
    """The nodes that depend on no input, and whether they depend on weights."""
    fixed = {w.name for w in graph.weights} | {d.name for d in graph.folded}
    fixed -= graph.changed
    known: dict[str, bool] = {}
    for node in graph.nodes:
        if _is_pure(node) and all(value in fixed or value in known for value in node.values):
            known[node.name] = any(value in fixed or known.get(value, False) for value in node.values)
    return known


def _is_pure(node: Node) -> bool:
    type_ = node.type
    if node.op not in OPS or OPS[node.op].kind not in _PURE or node.effect or node.call is None or type_ is None:
        return False
    return not type_.batched and type_.nbytes <= _MOST_BYTES and not any(isinstance(part, BatchSize) for part in inner(node.call))


def _is_worth(graph: OpGraph, known: dict[str, bool], name: str) -> bool:
    """Whether others read the value, and it is none that each kernel makes where it reads it.

    A table of weights is one of indices, too: kernels and rewrites have their own ways with sums of weights alone.
    """
    users = [user for user in graph.users(name) if user.name not in known]
    node = graph.node(name)
    if not users or is_view(node) and node.values[0] not in known or is_returned(graph, name):
        return False
    if known[name]:
        return _has_indices(graph, known, name)
    return not _is_made_on_the_way(graph, name) or any(user.op not in OPS for user in users)


def _has_indices(graph: OpGraph, known: dict[str, bool], name: str) -> bool:
    """Whether the value looks weights up, or computes with indices."""
    node = graph.node(name)
    of = OPS[node.op]
    return of.kind is Kind.CONSTANT or of.gathers or any(_has_indices(graph, known, value) for value in node.values if value in known)


def _is_made_on_the_way(graph: OpGraph, name: str) -> bool:
    node = graph.node(name)
    return OPS[node.op].kind in (Kind.CONSTANT, Kind.VIEW, Kind.POINTWISE) and all(_is_made_on_the_way(graph, v) for v in node.values)


def is_returned(graph: OpGraph, name: str) -> bool:
    """Whether forward returns the value or a view of it: what a caller writes into it would stay."""
    return name in graph.returns or any(is_view(user) and is_returned(graph, user.name) for user in graph.users(name))


def _folded(node: Node, anchor: str, names: dict[str, str]) -> FoldedWeight:
    """The node as a weight that is computed once; ``anchor`` is a weight, on whose device it lies."""
    sources = tuple(names.get(value, value) for value in node.values)
    needs_device = any(isinstance(part, Device) for part in inner(node.call)) or not sources
    device = f"{{{len(sources)}}}.device"
    text = written(node.call, lambda number: f"{{{number}}}", device)
    return FoldedWeight(names[node.name], node.type, text, (*sources, anchor) if needs_device else sources)
