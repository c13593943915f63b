"""Einsums of parts and of concatenations with zeros, as einsums of fewer elements.

    einsum("bzc,bcn->bzn", d, s)[:, -1]              einsum("bc,bcn->bn", d[:, -1], s)
    einsum("bc,bcn->bn", d, cat([zeros, s], 1))      einsum("bc,bcn->bn", d[:, 1:], s)

Scans of chunks are written so: states of all chunks come from a product with a triangle, behind states of zero. An
einsum of an einsum stays two: the products of factors may be infinite where those of sums are not.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Sequence

from kgen.compiler.graph.einsum import Equation, einsum, equation_of
from kgen.compiler.graph.graph import Decomposition, Node, OpGraph, Tensor
from kgen.compiler.graph.library_call import Applied, Many, Value, X, Y, aten, functional, torch_
from kgen.compiler.graph.source import reshape_call
from kgen.compiler.rewrites.view_nodes import sliced

_EINSUM = "aten.einsum.default"


def parts_of_einsums(graph: OpGraph) -> OpGraph:
    """Einsums in float32 without elements that nothing needs: results that nothing reads, and products with zeros."""
    while True:
        for node in graph.nodes:
            of = _equation(graph, node)
            found = of and (_of_part(graph, node, of) or _without_zeros(graph, node, of))
            if found:
                graph = found.pruned()
                break
        else:
            return graph


def _equation(graph: OpGraph, node: Node) -> Equation | None:
    """The equation of an einsum whose products are of pairs; ``None`` of all else. An operand may stand twice in it."""
    if node.op != _EINSUM or node.parts is None or node.type.dtype != "float32" or not isinstance(node.call, Applied):
        return None
    if len(node.call.args[1].items) != len(node.inputs):
        return None
    return equation_of(node.call.args[0], [graph.type(value).shape for value in node.inputs])


def _of_part(graph: OpGraph, node: Node, of: Equation) -> OpGraph | None:
    """The einsum of parts of its operands, where all that reads it is one part of it."""
    users = graph.users(node.name)
    if len(users) != 1 or users[0].op not in ("select", "slice") or node.name in graph.returns:
        return None
    (part,) = users
    label, nodes, inputs, labels = of.result[part["dim"]], [], [], []
    for value, own in zip(node.inputs, of.labels):
        if label in own:
            nodes.append(
                _part_of(
                    graph.fresh(f"{part.name}_of_{value}"),
                    value,
                    graph.type(value),
                    own.index(label),
                    part,
                    node.type.shape[part["dim"]],
                )
            )
        inputs.append(nodes[-1].name if label in own else value)
        labels.append(own.replace(label, "") if part.op == "select" else own)
    if "" in labels or len({n.name for n in nodes}) < len(nodes):
        return None
    result = of.result.replace(label, "") if part.op == "select" else of.result
    types = {n.name: n.type for n in nodes}
    made = _node(part.name, labels, result, inputs, [types.get(v) or graph.type(v) for v in inputs], part.type)
    return graph.with_nodes_for(node.name, nodes).with_nodes_for(part.name, [made])


def _part_of(name: str, value: str, type_: Tensor, dim: int, part: Node, size: int) -> Node:
    """The same part of an operand, along a dimension of as many elements."""
    if part.op == "select":
        kept = [d for d in range(len(type_.shape)) if d != dim]
        return Node(
            name,
            "select",
            (value,),
            type_.permuted(kept),
            torch_("select", X, dim, part["at"]),
            (("dim", dim), ("at", part["at"])),
        )
    start, step, count = part["start"], part["step"], part.type.shape[part["dim"]]
    return sliced(name, value, type_, dim, start, min(start + (count - 1) * step + 1, size), step)


def _without_zeros(graph: OpGraph, node: Node, of: Equation) -> OpGraph | None:
    """The einsum without zeros that begin or end a concatenation along a dimension that it sums over."""
    for at, value in enumerate(node.inputs):
        joined = graph.producer(value)
        if joined is None or joined.op != "cat" or node.inputs.count(value) > 1:
            continue
        label, parts = of.labels[at][joined["dim"]], list(joined.inputs)
        first, last = 0, len(parts)
        while first < last and graph.is_zero(parts[first]):
            first += 1
        while last > first and graph.is_zero(parts[last - 1]):
            last -= 1
        sizes = [graph.type(part).shape[joined["dim"]] for part in parts]
        others = [n for n, own in enumerate(of.labels) if n != at and label in own]
        if label in of.result or first == last or last - first == len(parts) or not others:
            continue
        start, count = sum(sizes[:first]), sum(sizes[first:last])
        nodes, inputs = [], list(node.inputs)
        inputs[at] = parts[first]
        if last - first > 1:
            shape = list(joined.type.shape)
            shape[joined["dim"]] = count
            call = torch_("cat", Many(tuple(map(Value, range(last - first)))), joined["dim"])
            nodes.append(
                replace(
                    joined,
                    name=graph.fresh(f"{joined.name}_rest"),
                    inputs=tuple(parts[first:last]),
                    type=replace(joined.type, shape=tuple(shape)),
                    call=call,
                )
            )
            inputs[at] = nodes[-1].name
        for n in others:
            nodes.append(
                sliced(
                    graph.fresh(f"{node.name}_of_{inputs[n]}"),
                    inputs[n],
                    graph.type(inputs[n]),
                    of.labels[n].index(label),
                    start,
                    start + count,
                )
            )
            inputs[n] = nodes[-1].name
        types = {n.name: n.type for n in nodes}
        made = _node(
            node.name, of.labels, of.result, inputs, [types.get(v) or graph.type(v) for v in inputs], node.type
        )
        return graph.with_nodes_for(node.name, [*nodes, made]) if len(types) == len(nodes) else None
    return None


def _node(
    name: str, labels: Sequence[str], result: str, inputs: Sequence[str], types: Sequence[Tensor], type_: Tensor
) -> Node:
    """The einsum of these operands, with its products of pairs."""
    of = equation_of(f"{','.join(labels)}->{result}", [_extents(t) for t in types])
    assert of is not None, "parts of an equation repeat no letter"
    parts = _Parts()
    found = einsum(of, [_Array(parts, f"@{number}", t) for number, t in enumerate(types)], parts)
    call = aten("einsum.default", of.text, Many(tuple(map(Value, range(len(inputs))))))
    return Node(name, _EINSUM, tuple(inputs), type_, call, parts=Decomposition(tuple(parts.nodes), (found.name,)))


class _Extent(int):
    """The size of a dimension that is ``multiple`` times the batch, or that does not follow it."""

    multiple: int

    @staticmethod
    def of(size: int, multiple: int) -> _Extent:
        found = _Extent(size)
        found.multiple = multiple
        return found

    def __mul__(self, other: int) -> int:
        own, others = self.multiple, getattr(other, "multiple", 0)
        return _Extent.of(int(self) * int(other), own * int(other) if own else others * int(self))

    __rmul__ = __mul__


def _extents(type_: Tensor) -> list[int]:
    return [_Extent.of(size, multiple) for size, multiple in zip(type_.shape, type_.multiples)]


def _type(sizes: Sequence[int], dtype: str) -> Tensor:
    return Tensor(tuple(map(int, sizes)), dtype, tuple(getattr(size, "multiple", 0) for size in sizes))


@dataclass
class _Parts:
    """The nodes of a decomposition, as they are made."""

    nodes: list[Node] = field(default_factory=list)

    def add(self, op: str, arrays: Sequence[_Array], sizes: Sequence[int], call: Any, **attrs: Any) -> _Array:
        name = f"{op}_{len(self.nodes)}"
        type_ = _type(sizes, arrays[0].type.dtype)
        self.nodes.append(Node(name, op, tuple(a.name for a in arrays), type_, call, tuple(attrs.items())))
        return _Array(self, name, type_)

    def linear(self, x: _Array, w: _Array) -> _Array:
        return self.add("linear", [x, w], [*x.shape[:-1], w.shape[0]], functional("linear", X, Y))

    def bmm(self, x: _Array, y: _Array) -> _Array:
        return self.add("bmm", [x, y], [*x.shape[:-1], y.shape[-1]], torch_("bmm", X, Y))


@dataclass(frozen=True)
class _Array:
    """A value of a decomposition: :class:`kgen.compiler.graph.einsum.Array`."""

    parts: _Parts
    name: str
    type: Tensor

    @property
    def shape(self) -> list[int]:
        return _extents(self.type)

    def sum(self, dims: list[int]) -> _Array:
        kept = [size for d, size in enumerate(self.shape) if d not in dims]
        return self.parts.add("sum", [self], kept, torch_("sum", X, Many(tuple(dims))), dims=tuple(dims), keepdim=False)

    def permute(self, dims: list[int]) -> _Array:
        return self.parts.add(
            "permute", [self], [self.shape[d] for d in dims], torch_("permute", X, Many(tuple(dims))), dims=tuple(dims)
        )

    def transpose(self, dim: int, other: int) -> _Array:
        dims = list(range(len(self.shape)))
        dims[dim], dims[other] = other, dim
        return self.permute(dims)

    def reshape(self, *sizes: Any) -> _Array:
        wanted = list(sizes[0] if isinstance(sizes[0], list) else sizes)
        if wanted == self.shape:
            return self
        return self.parts.add("view", [self], wanted, reshape_call(_type(wanted, self.type.dtype)))

    def unsqueeze(self, dim: int) -> _Array:
        return self.reshape([*self.shape[:dim], 1, *self.shape[dim:]])

    def __mul__(self, other: _Array) -> _Array:
        sizes = [b if a == 1 else a for a, b in zip(self.shape, other.shape)]
        return self.parts.add("mul", [self, other], sizes, torch_("mul", X, Y))

    def __matmul__(self, other: _Array) -> _Array:
        return self.parts.add("matmul", [self, other], [*self.shape[:-1], other.shape[-1]], torch_("matmul", X, Y))
