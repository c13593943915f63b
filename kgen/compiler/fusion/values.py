"""Values of a graph as kernels read them: through views, and through what is computed where it is read."""

from __future__ import annotations

import bisect
from typing import Iterator, Mapping, Sequence

from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.reductions import of_few
from kgen.compiler.operators.table import OPS


def kind_of(node: Node) -> Kind | None:
    """The kind of the node's operator; ``None`` of one that is not in the table."""
    return OPS[node.op].kind if node.op in OPS else None


def is_contraction(node: Node) -> bool:
    return kind_of(node) is Kind.CONTRACTION


def is_pointwise(node: Node) -> bool:
    return kind_of(node) is Kind.POINTWISE


def made_on_the_way(graph: OpGraph) -> frozenset[str]:
    """Nodes that cost nothing where they are read: views, and what is computed from indices and numbers alone."""
    found = graph.__dict__.get("_made_on_the_way")
    if found is None:
        indices: set[str] = set()
        for n in graph.nodes:
            kind = kind_of(n)
            if kind is Kind.CONSTANT or (
                kind in (Kind.VIEW, Kind.POINTWISE) and n.values and indices.issuperset(n.values)
            ):
                indices.add(n.name)
        views = {n.name for n in graph.nodes if kind_of(n) is Kind.VIEW}
        found = frozenset(indices | views)
        object.__setattr__(graph, "_made_on_the_way", found)
    return found


def roots(graph: OpGraph, free: frozenset[str], value: str) -> frozenset[str]:
    """The value that this one is a view or a free map of; itself where it is neither; nothing where indices alone make
    it."""
    return _ways(graph, free, value)[0]


def on_the_way(graph: OpGraph, free: frozenset[str], value: str) -> tuple[str, ...]:
    """The value and those before it that are made on the way to it, in order; none where it is an ordinary value."""
    return _ways(graph, free, value)[1]


def _ways(graph: OpGraph, free: frozenset[str], value: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Both of the above, worked out once: each piece of each plan asks for them."""
    of, known = graph.__dict__.get("_ways", (None, {}))
    if of is not free:
        of, known = graph.__dict__["_ways"] = free, {}
    if value not in known:
        node = graph.producer(value)
        if node is None or value not in free:
            known[value] = frozenset((value,)), ()
        else:
            ways = [_ways(graph, free, v) for v in node.values]
            known[value] = (
                frozenset().union(*(roots for roots, _ in ways)),
                (*(name for _, chain in ways for name in chain), value),
            )
    return known[value]


def readers(graph: OpGraph, views: frozenset[str], name: str) -> Iterator[Node]:
    """The nodes that read the value, directly or through views."""
    for user in graph.users(name):
        yield from readers(graph, views, user.name) if user.name in views else (user,)


def with_views(graph: OpGraph, free: frozenset[str], names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The nodes with all the views that they read through; with those of weights and of their own results; of these
    alone.

    Free maps are in all of them. A product may read a weight's columns for its rows where its other operand is a copy.
    """
    inside, views = set(names), made_on_the_way(graph)
    every: list[str] = []
    of_weights: list[str] = []
    inner: list[str] = []
    for name in names:
        for value in graph.node(name).values:
            chain, of = on_the_way(graph, free, value), roots(graph, free, value)
            own = of <= inside or not views.issuperset(chain)
            every += chain
            of_weights += chain if own or all(map(graph.is_weight, of)) else []
            inner += chain if own else []
        for choice in (every, of_weights, inner):
            choice.append(name)
    yield from dict.fromkeys(tuple(dict.fromkeys(choice)) for choice in (every, of_weights, inner))


def in_runs(
    graph: OpGraph, free: frozenset[str], fusable: frozenset[str], groups: Sequence[frozenset[str]] = ()
) -> list[Node]:
    """The nodes but free ones, with library calls as early as their operands allow: chains behind them stay in one
    piece.

    Maps of one value stand side by side: both halves of ``x * cos + turned(x) * sin``, with no product between them.
    The nodes of a group stay in one piece, too: they come as soon as the values are there that the whole group reads.

    Nodes with effects keep their places among each other, and before and after the nodes that read what they change.
    """
    nodes = [n for n in graph.nodes if n.name not in free]
    read = {n.name: {root for v in n.values for root in roots(graph, free, v)} for n in nodes}
    touched = graph.changed
    ordered = [n for n in nodes if n.effect or touched & read[n.name]]
    before = {b.name: a.name for a, b in zip(ordered, ordered[1:])}
    places = {n.name: at for at, n in enumerate(nodes)}
    missing = {n.name: {v for v in (*read[n.name], before.get(n.name, "")) if v in places} for n in nodes}
    for group in groups:
        outside = {v for name in group for v in missing[name]} - group
        if not any(_leads_to(missing, v, group) for v in outside):
            for name in group:
                missing[name] |= outside
    waiting: dict[str, list[str]] = {}  # the nodes that miss a value
    for name, values in missing.items():
        for value in values:
            waiting.setdefault(value, []).append(name)
    at_hand = [at for at, n in enumerate(nodes) if not missing[n.name]]
    out: list[Node] = []
    while at_hand:
        ready = [nodes[at] for at in at_hand]
        libraries = [n for n in ready if n.name not in fusable]
        follows = [n for n in ready if out and out[-1].name in read[n.name]]
        effects = [n for n in ready if n.effect and n.name in fusable]
        alike = [n for n in ready if out and _reduce_alike(n, out[-1])]
        together = [n for n in alike if of_one_recurrence(n, out[-1])]
        beside = [
            n for n in ready if out and is_pointwise(n) and is_pointwise(out[-1]) and read[n.name] & read[out[-1].name]
        ]
        node = (together or libraries or effects or alike or follows or beside or ready)[0]
        at_hand.remove(places[node.name])
        for name in waiting.get(node.name, ()):
            missing[name].discard(node.name)
            if not missing[name]:
                bisect.insort(at_hand, places[name])
        out.append(node)
    return out


def _leads_to(missing: Mapping[str, set[str]], value: str, group: frozenset[str]) -> bool:
    """Whether the value is made from one of the group."""
    seen, left = set[str](), [value]
    while left:
        name = left.pop()
        if name in group:
            return True
        if name not in seen:
            seen.add(name)
            left += missing.get(name, ())
    return False


def _reduce_alike(a: Node, b: Node) -> bool:
    """Whether one loop finds both results.

    They are reductions of one value along the same dimensions, scatters at the same places, or results of one
    recurrence.
    """
    if of_one_recurrence(a, b):
        return True
    if {kind_of(a), kind_of(b)} == {Kind.SCATTER}:
        return not set(a.values[1:]).isdisjoint(b.values[1:])
    return (
        {kind_of(a), kind_of(b)} == {Kind.REDUCTION}
        and of_few(a) == of_few(b)
        and a.inputs[0] == b.inputs[0]
        and a["dims"] == b["dims"]
    )


def of_one_recurrence(a: Node, b: Node) -> bool:
    """Whether both nodes are results of the same layers."""
    return kind_of(a) is Kind.RECURRENCE and (a.op, a.inputs) == (b.op, b.inputs)


def connected(graph: OpGraph, free: frozenset[str], piece: Sequence[Node]) -> bool:
    """Whether every node but the first reads an earlier one, or a value that an earlier one reads; views do not
    count."""
    seen: set[str] = set()
    for node in piece:
        read = {root for v in node.values for root in roots(graph, free, v)}
        if seen and not seen & read:
            return False
        seen |= read | {node.name}
    return True


def meets(graph: OpGraph, free: frozenset[str], piece: Sequence[Node]) -> bool:
    """Whether chains of nodes that have nothing in common at first meet in later nodes; views do not count."""
    chains: list[set[str]] = []
    for node in piece:
        own = {node.name, *(root for v in node.values for root in roots(graph, free, v))}
        chains = [chain for chain in chains if not chain & own] + [own.union(*(c for c in chains if c & own))]
    return len(chains) == 1


def used_outside(graph: OpGraph, free: frozenset[str], names: Sequence[str]) -> tuple[str, ...]:
    """The values that are returned, or that nodes outside read, directly or through free ones."""
    inside = set(names)

    def leaves(name: str) -> bool:
        users = graph.users(name)
        outer = any(leaves(u.name) if u.name in free else u.name not in inside for u in users)
        return outer or graph.node(name).effect or name in graph.returns

    return tuple(n for n in names if leaves(n))


def pulled(graph: OpGraph, free: frozenset[str], node: Node, stored: set[str], have: list[str]) -> list[str]:
    """Operands of the node that no kernel stored, in order, with what they need in turn. Views of stored ones are none
    of them."""
    out: list[str] = []
    for value in node.values:
        producer = graph.producer(value)
        views = made_on_the_way(graph).issuperset(on_the_way(graph, free, value))
        made = views and all(root in stored or not graph.producer(root) for root in roots(graph, free, value))
        if producer is not None and not made and value not in have:
            out.extend(pulled(graph, free, producer, stored, have))
            out.append(value)
    return out
