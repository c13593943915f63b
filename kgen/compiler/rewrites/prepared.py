"""Values of weights and numbers alone, which are computed once and kept until a weight changes.

    cos(arange(64) * inv_freq)                  a table, kept in every plan
    embedding(bias, buckets(arange(64)))        the same
    arange(64) >= arange(64)[:, None]           kept where the library reads it; kernels compute it where they read it
    w = scale * ((packed >> shift) & 15)        kept by a fold: four bits in a word cost each call nothing
    bias = table[places].permute(2, 0, 1)       so is a bias that is looked up

PyTorch computes them, so that they are the bits that eager has.
"""

from __future__ import annotations

from typing import Callable, Mapping

from kgen.compiler.graph.dtypes import DTYPES
from kgen.compiler.graph.graph import FoldedWeight, Node, OpGraph
from kgen.compiler.graph.library_call import BatchSize, LibraryCall, Value, inner, with_operands
from kgen.compiler.operators.facts import is_view
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS

LEAST_KEPT = 1 << 12  # elements; fewer are made on the way by each kernel that reads them, in registers
_LARGEST_TABLE = 1 << 28  # bytes; a larger one is made in each call, as PyTorch does

#: Kinds that kernels compute on the way to an element of theirs.
_ON_THE_WAY = frozenset({Kind.POINTWISE, Kind.INDEXED, Kind.CONSTANT, Kind.VIEW})
#: Kinds of the nodes of a table.
_TABLED = _ON_THE_WAY | {Kind.REDUCTION, Kind.SCAN}

#: Nodes that weights and numbers alone make, in order, with whether weights do.
Fixed = Mapping[str, bool]


def keep_tables(graph: OpGraph) -> OpGraph:
    """Keep values that depend on no input, and that kernels do not make on the way where they read them."""
    fixed = _fixed(graph, lambda n: n.op in OPS and OPS[n.op].kind in _TABLED and n.type.nbytes <= _LARGEST_TABLE)
    tables = {name: name for name in fixed if _is_table(graph, fixed, name)}
    needed = set(tables)
    for name in reversed(fixed):
        needed.update(value for value in graph.node(name).values if name in needed and value in fixed)
    # Nodes in the middle of a table stay for others that read them, and have another name in it.
    return _kept(graph, fixed, tables, {name: graph.fresh(f"{name}_table") for name in needed - tables.keys()})


def prepare_weights(graph: OpGraph) -> OpGraph:
    """Keep what forward computes from weights alone, where each call would store it or compute much."""
    # A random operator has no decomposition.
    fixed = _fixed(graph, lambda n: n.op in OPS or n.parts is not None or is_view(n))
    kept: dict[str, str] = {}
    for name in fixed:
        if _is_worth_it(graph, fixed, kept, name):
            kept[name] = graph.fresh(f"{name}_kept")
    return _kept(graph, fixed, kept, {})


def _fixed(graph: OpGraph, takes: Callable[[Node], bool]) -> Fixed:
    """The nodes that weights and numbers alone make, each by a node that the function takes."""
    found: dict[str, bool] = {}
    for node in graph.nodes:
        others = [v for v in node.values if not graph.is_weight(v) or v in graph.changed]
        constant = not node.values and (node.op not in OPS or OPS[node.op].kind is not Kind.CONSTANT)
        if not constant and found.keys() >= {*others} and _is_repeatable(node) and takes(node):
            found[node.name] = len(others) < len(node.values) or any(found[v] for v in others)
    return found


def _is_repeatable(node: Node) -> bool:
    """Whether the library computes a tensor of a fixed size, and changes nothing."""
    type_, call = node.type, node.call
    fixed = type_ is not None and type_.dtype in DTYPES and not type_.batched and not node.effect
    return fixed and call is not None and not any(isinstance(part, BatchSize) for part in inner(call))


def _is_table(graph: OpGraph, fixed: Fixed, name: str) -> bool:
    """Whether others read the value, and it is none that each kernel makes where it reads it.

    A table of weights is one of indices, too: kernels and rewrites have their own ways with sums of weights alone.
    """
    users = [user for user in graph.users(name) if user.name not in fixed]
    node = graph.node(name)
    if not users or is_view(node) and node.values[0] not in fixed or is_returned(graph, name):
        return False
    if fixed[name]:
        return _has_indices(graph, fixed, name)
    return not _is_made_on_the_way(graph, name) or any(user.op not in OPS for user in users)


def _has_indices(graph: OpGraph, fixed: Fixed, name: str) -> bool:
    """Whether the value looks weights up, or computes with indices."""
    node = graph.node(name)
    of = OPS[node.op]
    return (
        of.kind is Kind.CONSTANT
        or of.gathers
        or any(_has_indices(graph, fixed, value) for value in node.values if value in fixed)
    )


def _is_made_on_the_way(graph: OpGraph, name: str) -> bool:
    node = graph.node(name)
    return OPS[node.op].kind in (Kind.CONSTANT, Kind.VIEW, Kind.POINTWISE) and all(
        _is_made_on_the_way(graph, v) for v in node.values
    )


def is_returned(graph: OpGraph, name: str) -> bool:
    """Whether forward returns the value or a view of it: what a caller writes into it would stay."""
    return name in graph.returns or any(is_view(user) and is_returned(graph, user.name) for user in graph.users(name))


def _is_worth_it(graph: OpGraph, fixed: Fixed, kept: Mapping[str, str], name: str) -> bool:
    """Whether a weight makes the value, and a kernel that reads it would do more than a few operations on the way."""
    node, users = graph.node(name), _readers(graph, fixed, name)
    if is_view(node) or not fixed[name] or not users or is_returned(graph, name):
        return False
    made = (*users, *_before(graph, fixed, kept, name))
    return node.type.numel >= LEAST_KEPT or not all(
        is_view(n) or (n.op in OPS and OPS[n.op].kind in _ON_THE_WAY) for n in made
    )


def _readers(graph: OpGraph, fixed: Fixed, name: str) -> list[Node]:
    """The nodes that read the value, directly or through views, and are not made of weights alone themselves."""
    found = []
    for user in graph.users(name):
        if user.name not in fixed:
            found.append(user)
        elif is_view(user):
            found += _readers(graph, fixed, user.name)
    return found


def _before(graph: OpGraph, fixed: Fixed, kept: Mapping[str, str], name: str) -> list[Node]:
    """The node and those that it is made of, but for what is kept already."""
    node = graph.node(name)
    return [node, *(n for v in node.values if v in fixed and v not in kept for n in _before(graph, fixed, kept, v))]


def _kept(graph: OpGraph, fixed: Fixed, kept: Mapping[str, str], parts: Mapping[str, str]) -> OpGraph:
    """The graph with nodes as weights of other names. ``parts`` have names among these weights, too, and stay as
    nodes."""
    anchor = next((w.name for w in graph.weights if w.name not in graph.changed), None)
    if anchor is None or not kept:
        return graph
    names = {**kept, **parts}
    graph = graph.with_folded(*(_folded(graph, fixed, names, name, anchor) for name in fixed if name in names))
    for name, instead in kept.items():
        graph = graph.without(name, instead)
    return graph.pruned()


def _folded(graph: OpGraph, fixed: Fixed, names: Mapping[str, str], name: str, anchor: str) -> FoldedWeight:
    """The node as a weight, by the library's calls; on the device of the weight ``anchor`` where it is made of numbers
    alone."""
    sources: dict[str, None] = {}

    def call(of: Node) -> LibraryCall:
        return with_operands(of.call, lambda value: operand(of.values[value.number]))

    def operand(value: str) -> LibraryCall:
        if value in fixed and value not in names:
            return call(graph.node(value))
        source = names.get(value, value)
        sources.setdefault(source)
        return Value(list(sources).index(source))

    node = graph.node(name)
    whole = call(node)
    return FoldedWeight(names[name], node.type, whole, tuple(sources) or (anchor,))
