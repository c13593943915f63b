"""OpGraph: a problem's forward as operators with shapes: plain data that needs no torch.

Input ──┐
        ├─> Node ──> Node ──> outputs
Weight ─┘     (Folded weights are computed from other weights, once per change of them)
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Iterable, Sequence, Union

from kgen.compiler.graph.dtypes import nbytes
from kgen.compiler.graph.library_call import BatchSize, LibraryCall


class NotFusable(Exception):
    """These nodes do not make one kernel; the message says why."""


@dataclass(frozen=True)
class Tensor:
    """The type of a value: ``shape`` at the captured batch; ``multiples[i]`` is m where dimension i is m * batch, else
    0."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    multiples: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.multiples:
            object.__setattr__(self, "multiples", (0,) * len(self.shape))

    @property
    def numel(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        return self.numel * nbytes(self.dtype)

    @property
    def batched(self) -> bool:
        return any(self.multiples)

    @property
    def batch_inside(self) -> int:
        """The last extent above one where it follows the batch and lies inside of others, which do not; else 0."""
        sizes = [size for size in self.sizes() if size != 1]
        inside = len(sizes) > 1 and isinstance(sizes[-1], BatchSize) and all(isinstance(s, int) for s in sizes[:-1])
        return next(s for s, m in zip(self.shape, self.multiples) if m) if inside else 0

    def sizes(self) -> tuple[int | BatchSize, ...]:
        """The shape with batch-following dimensions as symbols."""
        return self._sizes

    @cached_property
    def _sizes(self) -> tuple[int | BatchSize, ...]:
        return tuple(BatchSize(m) if m else s for s, m in zip(self.shape, self.multiples))

    def permuted(self, dims: Sequence[int]) -> Tensor:
        """The type whose dimension ``i`` is dimension ``dims[i]`` of this one."""
        return Tensor(tuple(self.shape[d] for d in dims), self.dtype, tuple(self.multiples[d] for d in dims))


def memory_order(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The dimensions of a tensor from the outermost in memory to the innermost; empty where that is their own order.

    It is empty, too, where elements share memory.
    """
    if 0 in strides or 0 in sizes:
        return ()
    large = iter(sorted((d for d, size in enumerate(sizes) if size > 1), key=lambda d: -strides[d]))
    order = tuple(next(large) if size > 1 else d for d, size in enumerate(sizes))
    return order if order != tuple(range(len(order))) else ()


@dataclass(frozen=True)
class Input:
    """A tensor among the arguments of ``forward``.

    ``name`` is its name in the graph; ``source`` is Python source that reads it from forward's parameters.
    """

    name: str
    type: Tensor
    source: str = ""

    def __post_init__(self) -> None:
        if not self.source:
            object.__setattr__(self, "source", self.name)


@dataclass(frozen=True)
class Weight:
    """A parameter or buffer of the module; ``path`` is its dotted name."""

    name: str
    type: Tensor
    path: str
    buffer: bool = False


@dataclass(frozen=True)
class Constant:
    """A tensor that forward makes from numbers alone; ``text`` is Python source that makes it on the CPU."""

    name: str
    type: Tensor
    text: str


@dataclass(frozen=True)
class FoldedWeight:
    """A tensor computed from weights, kept between calls and made again when one of them changes.

    The operands of ``call`` are ``sources``: weights or earlier folded weights. Its device is that of the first one.
    """

    name: str
    type: Tensor
    call: LibraryCall
    sources: tuple[str, ...]


#: An operand of a node: the name of a value, or a number.
Operand = Union[str, int, float]


@dataclass(frozen=True)
class Node:
    """One operator.

    ``op`` is its name in :data:`kgen.compiler.operators.table.OPS`, or the ATen name of an operator that is not in the
    table. ``call`` is the library's way of computing it from ``values``; ``None`` where the library has none.
    ``effect`` marks a node that is run for what it changes (a buffer), so it is never dropped or moved across others.
    ``parts`` are the operators that it decomposes into; ``origin`` is the node that it is a part of, if any. ``tf32``
    says that PyTorch multiplies the operands of a convolution or of recurrent layers in TF32 at the captured batch
    size. ``products`` of float16 terms are as accurate as PyTorch at every batch size. A rewrite keeps both.
    """

    name: str
    op: str
    inputs: tuple[Operand, ...]
    type: Tensor | None
    call: LibraryCall | None
    attrs: tuple[tuple[str, Any], ...] = ()
    effect: bool = False
    parts: Decomposition | None = None
    origin: str = ""
    tf32: bool = False
    products: int = 3

    def __getitem__(self, key: str) -> Any:
        return dict(self.attrs)[key]

    @cached_property
    def attributes(self) -> str:
        """The attributes as text, to compare nodes by."""
        return repr(self.attrs)

    @cached_property
    def values(self) -> tuple[str, ...]:
        """Names of the values among the operands."""
        return tuple(i for i in self.inputs if isinstance(i, str))


@dataclass(frozen=True)
class Decomposition:
    """Nodes that stand for one node: they read its operands as ``@0``, ``@1``, ...; ``results`` names its results."""

    nodes: tuple[Node, ...]
    results: tuple[str, ...]


@dataclass(frozen=True)
class OpGraph:
    """A forward as operators in an order in which they can be run.

    ``output`` is Python source of what forward returns, with ``{name}`` for values; ``returns`` names those values.
    ``batch`` is the batch size captured; ``batch_input`` is the input whose first dimension follows it (``None``: every
    size is fixed). ``guards`` lists arguments that are no tensors, as Python source, with the value that they had.
    ``signature`` is the text of forward's parameters. ``orders`` has, for each of ``returns``, the dimensions from the
    outermost in PyTorch's memory to the innermost; an empty one is their own order. Without ``weight_copies``, plans
    keep no weight in another form beside it.
    """

    inputs: tuple[Input, ...]
    weights: tuple[Weight, ...]
    nodes: tuple[Node, ...]
    returns: tuple[str, ...]
    output: str
    folded: tuple[FoldedWeight, ...] = ()
    batch: int | None = None
    batch_input: str | None = None
    guards: tuple[tuple[str, Any], ...] = ()
    constants: tuple[Constant, ...] = ()
    signature: str = ""
    orders: tuple[tuple[int, ...], ...] = ()
    weight_copies: bool = True

    def type(self, name: str) -> Tensor:
        """The type of the value called ``name``."""
        return self._types[name]

    def known_type(self, name: str) -> Tensor | None:
        """The type of the value; ``None`` where it is no tensor, or its shape depends on values."""
        return self._types.get(name)

    def node(self, name: str) -> Node:
        return self._by_name[name]

    def producer(self, name: Operand) -> Node | None:
        """The node that makes the value, or ``None`` for inputs, weights and numbers."""
        return self._by_name.get(name)

    def users(self, name: str) -> tuple[Node, ...]:
        return self._by_operand.get(name, ())

    def order(self, name: str) -> tuple[int, ...]:
        """The order in memory of the dimensions of a value that forward returns; see ``orders``."""
        return next((order for value, order in zip(self.returns, self.orders) if value == name), ())

    @cached_property
    def changed(self) -> frozenset[str]:
        """The weights and buffers that nodes change, and those that these nodes read."""
        return frozenset(value for n in self.nodes if n.effect for value in n.values if self.is_weight(value))

    def feeds_only(self, name: str, user: Node) -> bool:
        """Whether ``user`` is all that uses the value (it may use it twice)."""
        return name not in self.returns and self.users(name) == (user,)

    def is_zero(self, of: Operand) -> bool:
        """Whether an operand is the number zero, or a tensor that is filled with it."""
        made = self.producer(of)
        return of == 0 or (made is not None and made.op == "full" and made["value"] == 0)

    def is_weight(self, name: Operand) -> bool:
        """Whether the value is a weight or folded from weights alone."""
        return name in self._weights

    def structure(self, nodes: Iterable[str], outputs: Iterable[str]) -> tuple[Any, ...]:
        """Some nodes, in order, and their ``outputs``, but for names: numbers stand for values, as they occur.

        Types are numbers, too, which hold in this process alone.

        Layers that a model repeats have one structure.
        """
        numbers: dict[str, int] = {}
        found: list[Any] = []
        for node in map(self.node, nodes):
            for value in node.values:
                if value not in numbers:
                    numbers[value] = len(numbers)
                    found.append((self._kinds.get(value, ""), self._type_numbers.get(value)))
            operands = [numbers[i] if isinstance(i, str) else repr(i) for i in node.inputs]
            found.append((node.op, *operands, self._type_numbers.get(node.name), node.attributes, node.products))
            numbers.setdefault(node.name, len(numbers))
        return (*found, *(numbers[output] for output in outputs))

    def named_structure(self, nodes: Sequence[str], outputs: Sequence[str]) -> tuple[Any, ...]:
        """Their :meth:`structure`, and the names of all values: nodes of two graphs that have one are the same."""
        values = dict.fromkeys(v for n in nodes for v in self.node(n).values)
        return self.structure(nodes, outputs), tuple(nodes), tuple(values)

    def form(self, nodes: Iterable[str], outputs: Iterable[str]) -> tuple[Any, ...]:
        """Their :meth:`structure` but for sizes, and for how many operands are concatenated.

        Layers of a network whose channels grow have one form.
        """
        numbers: dict[str, int] = {}
        sizes: dict[int, int] = {1: 1}
        found: list[Any] = []

        def kind(value: str) -> tuple[Any, ...]:
            type_ = self._types.get(value)
            of = type_ and (
                type_.dtype,
                type_.multiples,
                *(sizes.setdefault(size, -len(sizes)) for size in type_.shape),
            )
            return self._kinds.get(value, ""), of

        for node in map(self.node, nodes):
            inputs = (*node.inputs[:2], node.inputs[-1]) if node.op == "cat" and len(node.inputs) > 3 else node.inputs
            for value in inputs:
                if isinstance(value, str) and value not in numbers:
                    numbers[value] = len(numbers)
                    found.append(kind(value))
            operands = [numbers[i] if isinstance(i, str) else repr(i) for i in inputs]
            found.append((node.op, *operands, kind(node.name), node.attributes, node.products))
            numbers.setdefault(node.name, len(numbers))
        return (*found, *(numbers[output] for output in outputs))

    @cached_property
    def _weights(self) -> frozenset[Operand]:
        return frozenset(w.name for w in (*self.weights, *self.folded))

    @cached_property
    def _kinds(self) -> dict[str, str]:
        """The kinds of values that no node makes."""
        return {v.name: type(v).__name__ for v in (*self.inputs, *self.weights, *self.constants, *self.folded)}

    @cached_property
    def _by_name(self) -> dict[Operand, Node]:
        return {n.name: n for n in self.nodes}

    @cached_property
    def _by_operand(self) -> dict[str, tuple[Node, ...]]:
        """The nodes that read each value, in order."""
        found: dict[str, list[Node]] = {}
        for n in self.nodes:
            for value in dict.fromkeys(n.values):
                found.setdefault(value, []).append(n)
        return {value: tuple(nodes) for value, nodes in found.items()}

    @cached_property
    def _type_numbers(self) -> dict[str, int]:
        """A number for each type: numbers are hashed faster than types, and structures are hashed often."""
        return {name: _number(type_) for name, type_ in self._types.items()}

    @cached_property
    def _types(self) -> dict[str, Tensor]:
        outside = {v.name: v.type for v in (*self.inputs, *self.weights, *self.constants, *self.folded)}
        return outside | {n.name: n.type for n in self.nodes if n.type is not None}

    # Changes: each returns a new graph. Rewrites are made of these.

    def with_node(self, node: Node) -> OpGraph:
        """The node of that name replaced."""
        return replace(self, nodes=tuple(node if n.name == node.name else n for n in self.nodes))

    def with_nodes_for(self, name: str, nodes: Iterable[Node]) -> OpGraph:
        """Several nodes in the place of one."""
        out: list[Node] = []
        for n in self.nodes:
            out.extend(nodes if n.name == name else (n,))
        return replace(self, nodes=tuple(out))

    def without(self, name: str, instead: str) -> OpGraph:
        """The node dropped, and ``instead`` used wherever its value was."""
        nodes = tuple(
            replace(n, inputs=tuple(instead if i == name else i for i in n.inputs)) if name in n.inputs else n
            for n in self.nodes
            if n.name != name
        )
        returns = tuple(instead if r == name else r for r in self.returns)
        output = re.sub(rf"\{{{re.escape(name)}\}}", f"{{{instead}}}", self.output)
        return replace(self, nodes=nodes, returns=returns, output=output)

    def with_folded(self, *folded: FoldedWeight) -> OpGraph:
        return replace(self, folded=self.folded + folded)

    def fresh(self, stem: str) -> str:
        """A name for a new value that is not taken."""
        name, count = stem, 1
        while name in self._types or name in self._by_name:
            name, count = f"{stem}_{count}", count + 1
        return name

    def pruned(self) -> OpGraph:
        """The graph without nodes, folded weights, weights and constants that nothing uses any more."""
        needed = set(self.returns)
        nodes: list[Node] = []
        for n in reversed(self.nodes):
            if n.effect or n.name in needed:
                nodes.append(n)
                needed.update(n.values)
        folded: list[FoldedWeight] = []
        for d in reversed(self.folded):
            if d.name in needed:
                folded.append(d)
                needed.update(d.sources)
        weights = tuple(w for w in self.weights if w.name in needed)
        constants = tuple(c for c in self.constants if c.name in needed)
        return replace(
            self, nodes=tuple(reversed(nodes)), folded=tuple(reversed(folded)), weights=weights, constants=constants
        )


_numbers = itertools.count()


@lru_cache(maxsize=None)
def _number(type_: Tensor) -> int:
    """A number for the type, in this process."""
    return next(_numbers)


@dataclass(frozen=True)
class Ref:
    """An argument that is a value of the graph."""

    name: str


def refs(value: Any) -> list[str]:
    """The values that an argument mentions, in order, each once."""
    if isinstance(value, Ref):
        return [value.name]
    if isinstance(value, (tuple, list)):
        return list(dict.fromkeys(name for v in value for name in refs(v)))
    if isinstance(value, dict):
        return list(dict.fromkeys(name for v in value.values() for name in refs(v)))
    return []
