"""Results that a loop writes part by part, ``out[:, t] = y``, as one concatenation of the parts, and reads of a part as
the part."""

from __future__ import annotations

from dataclasses import replace

from kgen.compiler.graph.graph import Node, Operand, OpGraph
from kgen.compiler.graph.library_call import Many, Value, torch_


def written_to_joined(graph: OpGraph) -> OpGraph:
    """Tensors whose every index along one dimension was written, one after the other, as a stack of what was
    written."""
    if not any(n.op == "overwrite" for n in graph.nodes):
        return graph
    nodes: dict[str, Node] = {}
    instead: dict[Operand, str] = {}
    for old in graph.nodes:
        node = replace(old, inputs=tuple(instead.get(i, i) for i in old.inputs))
        value = None if node.name in graph.returns or node.effect else _read(nodes, graph, node)
        if value is not None:
            instead[node.name] = value
        else:
            nodes[node.name] = _joined(nodes, node) or node
    return replace(graph, nodes=tuple(nodes.values())).pruned()


def _read(nodes: dict[str, Node], graph: OpGraph, node: Node) -> str | None:
    """The value that a read of a written part has, or a copy of a value of its type."""
    if node.op == "copy":
        source = str(node.inputs[0])
        return source if graph.type(source) == node.type else None
    of = nodes.get(str(node.inputs[0])) if node.op == "select" else None
    while of is not None and of.op == "overwrite" and of["selected"] and of["dim"] == node["dim"]:
        if of["start"] == node["at"]:
            return str(of.inputs[1])
        of = nodes.get(str(of.inputs[0]))
    return None


def _joined(nodes: dict[str, Node], node: Node) -> Node | None:
    """The stack of all parts, if this node writes the last one that is missing."""
    if node.op != "overwrite" or not node["selected"]:
        return None
    dim, size = node["dim"], node.type.shape[node["dim"]]
    parts: dict[int, Operand] = {}
    of: Node | None = node
    while of is not None and of.op == "overwrite" and of["selected"] and of["dim"] == dim and of["start"] not in parts:
        parts[of["start"]] = of.inputs[1]
        of = nodes.get(str(of.inputs[0]))
    if len(parts) < size:
        return None
    call = torch_("stack", Many(tuple(map(Value, range(size)))), dim)
    return Node(node.name, "cat", tuple(parts[at] for at in range(size)), node.type, call, (("dim", dim),))
