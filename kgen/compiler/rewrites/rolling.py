"""Steps of an unrolled loop as operators over all steps: ``sigmoid(x[:, 0])``, ``sigmoid(x[:, 1])``, ... as
``sigmoid(x)``.

A value that each step has is rolled into one with a further dimension, the steps. It stands at ``place``, or last where
values have fewer dimensions. Values that all steps share stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Mapping, Sequence

from kgen.compiler.graph.graph import Node, Operand, OpGraph, Tensor
from kgen.compiler.graph.library_call import LibraryCall, Many, Value, X, Y, aten, torch_
from kgen.compiler.graph.source import reshape_call
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS

Names = tuple[Operand, ...]


class NotRolled(Exception):
    """Steps that are no operator over all steps: they differ, or no entry says how to roll their operator."""


@dataclass(frozen=True)
class Rolled:
    """An operand over all steps. ``at`` is the dimension that the steps are; ``None`` for what all steps share."""

    operand: Operand
    at: int | None


@dataclass
class Roller:
    """Rolls values of the steps of a graph into ``nodes``; ``states`` rolls what a recurrence makes, if it is that."""

    graph: OpGraph
    place: int
    states: Callable[[Names], Rolled | None]
    nodes: list[Node] = field(default_factory=list)
    _types: dict[str, Tensor] = field(default_factory=dict)
    _known: dict[Names, Rolled] = field(default_factory=dict)
    _waiting: set[Names] = field(default_factory=set)

    def type(self, name: str) -> Tensor:
        return self._types.get(name) or self.graph.type(name)

    def at(self, type_: Tensor) -> int:
        """Where the steps stand among the dimensions of a step's type."""
        return min(self.place, len(type_.shape))

    def roll(self, names: Names) -> Rolled:
        """The values of all steps. Raises :class:`NotRolled`."""
        if all(name == names[0] for name in names):
            return Rolled(names[0], None)
        if not all(isinstance(name, str) for name in names) or names in self._waiting:
            raise NotRolled("numbers differ from step to step, or two recurrences need each other")
        if names not in self._known:
            self._waiting.add(names)
            self._known[names] = self.states(names) or self._rolled(names)
            self._waiting.discard(names)
        return self._known[names]

    def add(
        self, stem: str, op: str, inputs: tuple[Operand, ...], type_: Tensor, call: LibraryCall | None, **attrs: Any
    ) -> str:
        """A further node, by its name."""
        stem = stem.partition("_steps")[0]
        name, count = f"{stem}_steps", 1
        while name in self._types or self.graph.known_type(name) or self.graph.producer(name):
            name, count = f"{stem}_steps_{count}", count + 1
        self._types[name] = type_
        self.nodes.append(Node(name, op, inputs, type_, call, tuple(attrs.items())))
        return name

    def pointwise(self, op: str, dtype: str, steps: int, *operands: Rolled) -> Rolled:
        """``add``, ``mul``, ``div`` or ``where`` of rolled values, broadcast; at least one of them is no number."""
        result = broadcast([without(self.type(o.operand), o.at) for o in operands if isinstance(o.operand, str)], dtype)
        values = [o.operand for o in operands if isinstance(o.operand, str)]
        call = torch_(
            op, *(Value(values.index(o.operand)) if isinstance(o.operand, str) else o.operand for o in operands)
        )
        attrs = {"alpha": 1} if op == "add" else {}
        if all(o.at is None for o in operands):
            return Rolled(self.add(str(values[0]), op, tuple(o.operand for o in operands), result, call, **attrs), None)
        return self._broadcast(str(values[0]), op, operands, result, steps, call, attrs)

    # One operator of each step

    def _rolled(self, names: Names) -> Rolled:
        made = [self.graph.producer(name) for name in names]
        first = made[0]
        if any(
            node is None or node.op != first.op or node.type != first.type or len(node.inputs) != len(first.inputs)
            for node in made
        ):
            raise NotRolled("steps have different operators")
        if first.op in ("select", "slice"):
            source = self.roll(tuple(node.inputs[0] for node in made))
            if source.at is None:
                return self._taken(made, str(source.operand))
        if any(node.attributes != first.attributes for node in made) or first.effect or first.type is None:
            raise NotRolled("steps have operators of different attributes")
        if not first.values:
            return Rolled(first.name, None)
        if first.op == "copy":
            return self._copied(made)
        operands = [self.roll(tuple(node.inputs[number] for node in made)) for number in range(len(first.inputs))]
        if all(o.at is None for o in operands):
            return Rolled(first.name, None)
        if OPS.get(first.op) and OPS[first.op].kind is Kind.POINTWISE:
            return self._broadcast(
                first.name, first.op, operands, first.type, len(names), first.call, dict(first.attrs)
            )
        if first.op not in _ROLLED:
            raise NotRolled(f"{first.op} of each step is no operator over all steps")
        return _ROLLED[first.op](self, first, operands, len(names))

    def _copied(self, made: list[Node]) -> Rolled:
        """Values that are copied into places of one dtype and shape."""
        if any(self.type(node.inputs[0]) != node.type for node in made):
            raise NotRolled("a copy of each step converts or broadcasts")
        return self.roll(tuple(node.inputs[0] for node in made))

    def _taken(self, made: list[Node], source: str) -> Rolled:
        """Elements of one tensor along a dimension, from either end."""
        first = made[0]
        key = "at" if first.op == "select" else "start"
        dim, places = first["dim"], [node[key] for node in made]
        if all(node.attributes == first.attributes for node in made):
            return Rolled(first.name, None)
        stride = places[1] - places[0]
        alike = all(node["dim"] == dim and (first.op == "select" or node["step"] == 1) for node in made)
        if not alike or not stride or any(b - a != stride for a, b in zip(places, places[1:])):
            raise NotRolled("steps take elements at uneven places")
        if first.op == "slice" and first.type.shape[dim] != 1:
            raise NotRolled("steps take several elements")
        low, of, steps = min(places), self.type(source), len(made)
        if of.multiples[dim]:
            raise NotRolled("steps follow the batch")
        found, type_ = source, resized(of, dim, steps)
        if of.shape[dim] != steps:
            found = self.add(
                first.name,
                "slice",
                (found,),
                type_,
                aten("slice", X, dim, low, max(places) + 1, abs(stride)),
                dim=dim,
                start=low,
                step=abs(stride),
            )
        if stride < 0:
            found = self.add(first.name, "flip", (found,), type_, torch_("flip", X, (dim,)), dims=(dim,))
        if first.op == "slice":
            found = self.viewed(found, inserted(type_, dim + 1, 1))
        at = self.at(first.type)
        return Rolled(self.moved(found, dim, at), at)

    def moved(self, name: str, before: int, after: int) -> str:
        """A dimension at another place."""
        rest = [d for d in range(len(self.type(name).shape)) if d != before]
        dims = (*rest[:after], before, *rest[after:])
        if before == after:
            return name
        return self.add(
            name, "permute", (name,), self.type(name).permuted(dims), torch_("permute", X, Many(dims)), dims=dims
        )

    def viewed(self, name: str, type_: Tensor) -> str:
        return name if self.type(name) == type_ else self.add(name, "view", (name,), type_, reshape_call(type_))

    def _broadcast(
        self,
        stem: str,
        op: str,
        operands: Sequence[Rolled],
        result: Tensor,
        steps: int,
        call: LibraryCall | None,
        attrs: Mapping[str, Any],
    ) -> Rolled:
        """An elementwise operator. Operands get dimensions of one element where the steps stand in others."""
        rank, at = len(result.shape), self.at(result)
        inputs = tuple(self.aligned(o, rank, at, steps) for o in operands)
        return Rolled(self.add(stem, op, inputs, inserted(result, at, steps), call, **attrs), at)

    def aligned(self, of: Rolled, rank: int, at: int, steps: int) -> Operand:
        """The operand for a result whose steps have ``rank`` dimensions, with the steps at ``at``."""
        if not isinstance(of.operand, str):
            return of.operand
        type_ = self.type(of.operand)
        if of.at is None:
            behind = rank - at
            return (
                of.operand
                if len(type_.shape) <= behind
                else self.viewed(of.operand, inserted(type_, len(type_.shape) - behind, 1))
            )
        if type_.shape[of.at] != steps:
            raise NotRolled("some values have more steps than others")
        missing = rank - (len(type_.shape) - 1)
        inner = max(0, at - missing)
        found, type_ = self.moved(of.operand, of.at, inner), without(type_, of.at)
        padded = Tensor((1,) * missing + type_.shape, type_.dtype, (0,) * missing + type_.multiples)
        return self.viewed(found, inserted(padded, at, steps))


# How operators that are not elementwise are rolled


def _of_rows(roller: Roller, node: Node, operands: list[Rolled], steps: int) -> Rolled:
    """A linear layer: the steps are among its rows."""
    x, *weights = operands
    if x.at is None or any(w.at is not None for w in weights) or x.at >= len(node.type.shape):
        raise NotRolled("the weights of a linear layer differ from step to step")
    inputs = tuple(o.operand for o in operands)
    return Rolled(
        roller.add(node.name, node.op, inputs, inserted(node.type, x.at, steps), node.call, **dict(node.attrs)), x.at
    )


def _matrices(roller: Roller, node: Node, operands: list[Rolled], steps: int) -> Rolled:
    """Products of matrices: the steps are a dimension of their batch. Of a column with a row, or of a row, they are no
    products of tiles."""
    (x, y), (left, right) = operands, (roller.graph.type(v) for v in node.values)
    rank = len(node.type.shape)
    if {len(left.shape), len(right.shape)} != {rank} or roller.place > rank - 2 or x.at is None or y.at is None:
        raise NotRolled("products of each step have no batch of matrices")
    if left.shape[-1] == 1:
        return roller.pointwise("mul", node.type.dtype, steps, x, y)
    if left.shape[-2] == 1:
        column = replace(
            left, shape=(*left.shape[:-2], left.shape[-1], 1), multiples=(*left.multiples[:-2], left.multiples[-1], 0)
        )
        scaled = roller.pointwise(
            "mul", node.type.dtype, steps, Rolled(roller.viewed(str(x.operand), inserted(column, x.at, steps)), x.at), y
        )
        attrs = {"dims": (rank - 1,), "keepdim": True}  # the rows, behind the steps
        call, type_ = torch_("sum", X, (rank - 1,), True), inserted(node.type, roller.place, steps)
        return Rolled(roller.add(node.name, "sum", (scaled.operand,), type_, call, **attrs), roller.place)
    inputs = (x.operand, y.operand)
    return Rolled(
        roller.add(node.name, "matmul", inputs, inserted(node.type, roller.place, steps), torch_("matmul", X, Y)),
        roller.place,
    )


def _reduced(roller: Roller, node: Node, operands: list[Rolled], steps: int) -> Rolled:
    """A reduction of other dimensions than the steps."""
    (of,) = operands
    rank, at = len(roller.type(str(of.operand)).shape) - 1, of.at
    dims = sorted(d % rank for d in node["dims"])
    around = tuple(d + (d >= at) for d in dims)
    behind = at if node["keepdim"] else at - sum(d < at for d in dims)
    type_ = inserted(node.type, behind, steps)
    attrs = dict(node.attrs) | {"dims": around}
    found = roller.add(
        node.name, node.op, (of.operand,), type_, torch_(node.op, X, Many(around), node["keepdim"]), **attrs
    )
    to = roller.at(node.type)
    return Rolled(roller.moved(found, behind, to), to)


def _reshaped(roller: Roller, node: Node, operands: list[Rolled], steps: int) -> Rolled:
    """A view that leaves the dimensions in front of the steps as they are."""
    (of,) = operands
    before = roller.graph.type(node.values[0])
    if before.sizes()[: of.at] != node.type.sizes()[: of.at] or of.at > len(node.type.shape):
        raise NotRolled("a view of each step takes dimensions apart that the steps stand in")
    found = roller.viewed(str(of.operand), inserted(node.type, of.at, steps))
    to = roller.at(node.type)
    return Rolled(roller.moved(found, of.at, to), to)


def _permuted(roller: Roller, node: Node, operands: list[Rolled], steps: int) -> Rolled:
    (of,) = operands
    dims = [d + (d >= of.at) for d in node["dims"]]
    dims = (*dims[: of.at], of.at, *dims[of.at :])
    type_ = inserted(node.type, of.at, steps)
    return Rolled(
        roller.add(node.name, "permute", (of.operand,), type_, torch_("permute", X, Many(dims)), dims=dims), of.at
    )


def _expanded(roller: Roller, node: Node, operands: list[Rolled], steps: int) -> Rolled:
    (of,) = operands
    at = roller.at(node.type)
    type_, source = inserted(node.type, at, steps), roller.aligned(of, len(node.type.shape), at, steps)
    return Rolled(roller.add(node.name, "expand", (source,), type_, X.method("expand", *type_.sizes())), at)


def _along(roller: Roller, node: Node, operands: list[Rolled], steps: int) -> Rolled:
    """A part of each step's value along another dimension."""
    (of,) = operands
    dim = node["dim"] + (node["dim"] >= of.at)
    at = of.at - (node.op == "select" and dim < of.at)
    size = 1 if node.op == "select" else node.type.shape[node["dim"]]
    call = (
        aten("select", X, dim, node["at"])
        if node.op == "select"
        else aten("slice", X, dim, node["start"], node["start"] + size * node["step"], node["step"])
    )
    found = roller.add(
        node.name, node.op, (of.operand,), inserted(node.type, at, steps), call, **(dict(node.attrs) | {"dim": dim})
    )
    to = roller.at(node.type)
    return Rolled(roller.moved(found, at, to), to)


_ROLLED: dict[str, Callable[[Roller, Node, list[Rolled], int], Rolled]] = {
    "linear": _of_rows,
    **dict.fromkeys(("matmul", "bmm"), _matrices),
    **dict.fromkeys(("sum", "mean"), _reduced),
    **dict.fromkeys(("select", "slice"), _along),
    "view": _reshaped,
    "permute": _permuted,
    "expand": _expanded,
}


# Types


def inserted(type_: Tensor, at: int, size: int) -> Tensor:
    """The type with a further dimension."""
    return Tensor(
        (*type_.shape[:at], size, *type_.shape[at:]), type_.dtype, (*type_.multiples[:at], 0, *type_.multiples[at:])
    )


def resized(type_: Tensor, dim: int, size: int) -> Tensor:
    """The type with another extent of a dimension, which does not follow the batch."""
    return replace(
        type_,
        shape=(*type_.shape[:dim], size, *type_.shape[dim + 1 :]),
        multiples=(*type_.multiples[:dim], 0, *type_.multiples[dim + 1 :]),
    )


def without(type_: Tensor, at: int | None) -> Tensor:
    """The type of one step."""
    if at is None:
        return type_
    return Tensor(
        (*type_.shape[:at], *type_.shape[at + 1 :]), type_.dtype, (*type_.multiples[:at], *type_.multiples[at + 1 :])
    )


def broadcast(types: list[Tensor], dtype: str) -> Tensor:
    """The type of what an elementwise operator makes of these."""
    rank = max(len(t.shape) for t in types)
    padded = [
        tuple(zip((1,) * (rank - len(t.shape)) + t.shape, (0,) * (rank - len(t.shape)) + t.multiples)) for t in types
    ]
    sizes = [max(of) for of in zip(*padded)]
    return Tensor(tuple(size for size, _ in sizes), dtype, tuple(multiple for _, multiple in sizes))
