"""Rewrites of scans, so that what shifts a running value or cuts it off stands in front, where the scan's kernel reads
it.

    cat((zeros, cumsum(x)[:, :-1]), 1)      cumsum(cat((zeros, x[:, :-1]), 1), 1)      the exclusive scan
    cumsum(cat((zeros, x), 1), 1)[:, :-1]   cumsum(cat((zeros, x), 1)[:, :-1], 1)
    pad(cumsum(x), (1, -1))                 cumsum(pad(x, (1, -1)), 1)
    flip(cumsum(flip(x)))[:, 1:]            flip(cumsum(flip(x[:, 1:])))               scans from the end, likewise

Behind a scan, each of these would be a kernel of its own, which reads and writes every running value once more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kgen.compiler.graph.graph import Node, OpGraph, Tensor
from kgen.compiler.operators.scans import SCANS

_BEGINS = {
    "cumsum": SCANS["sum"].start,
    "cumprod": SCANS["prod"].start,
}  # the running value in front of the first element


@dataclass(frozen=True)
class _Running:
    """A scan with the reversals around it: ``nodes`` from the first to the last one, of ``x`` along ``dim``."""

    nodes: tuple[Node, ...]
    x: str
    dim: int
    begin: float
    reverse: bool


def shift_in_front_of_scan(graph: OpGraph) -> OpGraph:
    """Values in front of the first running value, and parts that end with the scan's own beginning, as those of the
    operand."""
    changed = True
    while changed:
        changed = False
        for node in graph.nodes:
            found = _behind(graph, node)
            if found is not None:
                graph, changed = _moved(graph, node, *found), True
                break
    return graph


def _behind(graph: OpGraph, node: Node) -> tuple[_Running, int] | None:
    """The scan that a node shifts or cuts, and the number of its operand that the scan is."""
    if node.op == "slice":
        found = _running(graph, node.inputs[0], node)
        size = graph.type(node.inputs[0]).shape[node["dim"]]
        kept = found and node["dim"] == found.dim and node["step"] == 1
        return (
            (found, 0)
            if kept and (node["start"] + node.type.shape[found.dim] == size if found.reverse else node["start"] == 0)
            else None
        )
    if (
        node.op == "cat"
        and len(node.inputs) == 2
        and len(node.type.shape) == len(graph.type(str(node.inputs[0])).shape)
    ):
        for number in (0, 1):
            found = _running(graph, node.inputs[number], node)
            other = graph.producer(node.inputs[1 - number])
            begins = found and other is not None and other.op == "full" and other["value"] == found.begin
            if begins and node["dim"] == found.dim and number == (0 if found.reverse else 1):
                return found, number
    if node.op == "pad":
        found = _running(graph, node.inputs[0], node)
        if (
            found
            and node["value"] == found.begin
            and not any(any(pair) for d, pair in enumerate(node["pad"]) if d != found.dim)
        ):
            added, cut = node["pad"][found.dim][::-1] if found.reverse else node["pad"][found.dim]
            return (found, 0) if cut <= 0 <= added else None
    return None


def _running(graph: OpGraph, name: object, user: Node) -> _Running | None:
    """The scan that makes a value which nothing else reads, from either end."""
    node = graph.producer(name) if isinstance(name, str) else None
    if node is None or not graph.feeds_only(node.name, user):
        return None
    if node.op in _BEGINS:
        return _Running((node,), str(node.inputs[0]), node["dim"], _BEGINS[node.op], False)
    if node.op == "flip":
        inner = _running(graph, node.inputs[0], node)
        first = graph.producer(inner.x) if inner and not inner.reverse else None
        if (
            inner
            and first is not None
            and first.op == "flip"
            and first["dims"] == node["dims"] == (inner.dim,)
            and graph.feeds_only(first.name, inner.nodes[0])
        ):
            return _Running((first, *inner.nodes, node), str(first.inputs[0]), inner.dim, inner.begin, True)
    return None


def _moved(graph: OpGraph, node: Node, of: _Running, number: int) -> OpGraph:
    """The graph with the node in front of the scan. The last node has the name of the node that moves."""
    type_ = replace(node.type, dtype=graph.type(of.x).dtype)
    shifted = graph.fresh(f"{of.nodes[0].name}_shifted")
    nodes = [
        replace(
            node,
            name=shifted,
            type=type_,
            inputs=tuple(of.x if at == number else i for at, i in enumerate(node.inputs)),
        )
    ]
    for old in of.nodes:
        name = node.name if old is of.nodes[-1] else old.name
        nodes.append(
            replace(
                old,
                name=name,
                inputs=(nodes[-1].name,),
                type=Tensor(node.type.shape, old.type.dtype, node.type.multiples),
            )
        )
    names = {old.name for old in of.nodes}
    graph = replace(graph, nodes=tuple(n for n in graph.nodes if n.name not in names))
    return graph.with_nodes_for(node.name, nodes)
