"""Values of weights alone, which are computed once and kept until a weight changes.

    w = scale * ((packed >> shift) & 15) ; x @ w            w is made once: four bits in a word cost each call nothing
    bias = table[places].permute(2, 0, 1) ; q @ k + bias     so is a bias that is looked up

PyTorch computes them, so that they are the bits that eager has.
"""

from __future__ import annotations

from kgen.compiler.graph.dtypes import DTYPES
from kgen.compiler.graph.graph import FoldedWeight, Node, OpGraph
from kgen.compiler.graph.library_call import LibraryCall, Value, with_operands, written
from kgen.compiler.operators.facts import is_view
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS
from kgen.compiler.rewrites.constants import is_returned

LEAST_KEPT = 1 << 12  # elements; fewer are made on the way by each kernel that reads them, in registers

#: Kinds that kernels compute on the way to an element of theirs.
_ON_THE_WAY = frozenset({Kind.POINTWISE, Kind.INDEXED, Kind.CONSTANT, Kind.VIEW})


def prepare_weights(graph: OpGraph) -> OpGraph:
    """Keep what forward computes from weights alone, where each call would store it or compute much."""
    made = _of_weights(graph)
    for node_name in [n.name for n in graph.nodes if n.name in made and not is_view(n)]:
        node = graph.node(node_name)  # as it reads now: an operand may have been kept before it
        users = _readers(graph, node.name, made)
        if users and not is_returned(graph, node.name) and _is_worth_it(graph, node, users, made):
            name = graph.fresh(f"{node.name}_kept")
            graph = graph.with_folded(_folded(graph, node, name, made)).without(node.name, name)
    return graph.pruned()


def _of_weights(graph: OpGraph) -> dict[str, bool]:
    """The nodes that weights alone make, in order, with whether one does: others are made of indices and numbers."""
    found: dict[str, bool] = {}
    for node in graph.nodes:
        known = node.op in OPS or node.parts is not None or is_view(node)  # a random operator has no decomposition
        fixed = node.type is not None and node.type.dtype in DTYPES and not node.type.batched
        weights = {v for v in node.values if graph.is_weight(v)}
        others = set(node.values) - weights
        if known and fixed and node.call is not None and not node.effect and others <= found.keys() and not weights & graph.changed:
            if node.values or (node.op in OPS and OPS[node.op].kind is Kind.CONSTANT):
                found[node.name] = bool(weights) or any(found[v] for v in others)
    return found


def _readers(graph: OpGraph, name: str, made: dict[str, bool]) -> list[Node]:
    """The nodes that read the value, directly or through views, and are not made of weights alone themselves."""
    found = []
    for user in graph.users(name):
        if user.name not in made:
            found.append(user)
        elif is_view(user):
            found += _readers(graph, user.name, made)
    return found


def _is_worth_it(graph: OpGraph, node: Node, users: list[Node], made: dict[str, bool]) -> bool:
    """Whether a weight makes it, and a kernel that reads it would do more than a few operations on the way."""
    on_the_way = all(is_view(n) or (n.op in OPS and OPS[n.op].kind in _ON_THE_WAY) for n in (*users, *_before(graph, node, made)))
    return made[node.name] and not (on_the_way and node.type.numel < LEAST_KEPT)


def _before(graph: OpGraph, node: Node, made: dict[str, bool]) -> list[Node]:
    """The node and those that it is made of."""
    return [node, *(n for v in node.values if v in made for n in _before(graph, graph.node(v), made))]


def _folded(graph: OpGraph, node: Node, name: str, made: dict[str, bool]) -> FoldedWeight:
    """The node as a weight of that name, by the library's calls."""
    sources: dict[str, None] = {}

    def call(of: Node) -> LibraryCall:
        return with_operands(of.call, lambda value: operand(of.values[value.number]))

    def operand(value: str) -> LibraryCall:
        if value in made:
            return call(graph.node(value))
        sources.setdefault(value)
        return Value(list(sources).index(value))

    whole = call(node)
    return FoldedWeight(name, node.type, written(whole, lambda number: f"{{{number}}}", "{0}.device"), tuple(sources))
