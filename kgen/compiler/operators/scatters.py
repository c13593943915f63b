"""Scatters: elements of an operand that are taken into those of another tensor, at places that are values.

    y = x.index_add(0, at, source)     y begins as x; then y[at[i], j] += source[i, j] for each i and j
    y = x.scatter(1, at, 2.0)          y begins as x; then y[i, at[i, j]] = 2.0

A scatter ends its kernel, whose loops run over the elements that are taken. Several of one loop make one kernel.
Where several elements are taken into one, a kernel on a GPU adds them up in any order, as PyTorch's does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import sympy

from kgen.compiler.graph.graph import Node, NotFusable, OpGraph, Ref, Tensor
from kgen.compiler.loops.expr import where, x
from kgen.compiler.operators.op import Builder, Captured, Index

#: How elements are taken in: the value that changes nothing. The ``last`` one stays, or any of them where they are
#: taken at once.
KINDS = {"sum": 0, "product": 1, "max": -math.inf, "min": math.inf, "last": None}

#: Kinds that may be taken into the elements of their source itself: those of extremes may begin as other bits of NaN.
IN_PLACE = frozenset({"sum", "product", "last"})

#: Operators whose result has the numbers of their operand.
_VIEWS = ("view", "permute", "expand", "slice", "select")

#: ATen's words for kinds.
_WORDS = {"sum": "sum", "prod": "product", "amax": "max", "amin": "min"}


@dataclass(frozen=True)
class Scattered:
    """One scatter of a program that is being built: the value, the axes of its loops, and the index at which it is
    taken in.

    ``places`` are the values that the index holds, ``size`` is the extent of the first one's dimension. The result
    begins as the tensor ``source``, which comes again after a ``period`` of elements where that is not 0, or as the
    number ``start``.
    """

    node: str
    kind: str
    value: str
    loops: Index
    index: Index
    places: tuple[str, ...]
    size: int
    source: str
    start: float | int
    ordered: bool
    period: int
    sorted: bool


# Attributes of calls


def _fits(call: Captured, kind: str) -> bool:
    """Whether kernels take elements of that dtype in so."""
    dtype = call.type.dtype if call.type else ""
    same = all(
        call.types[a.name].dtype == dtype
        for name in ("source", "src", "values")
        if isinstance(a := call.arguments.get(name), Ref)
    )
    return same and (kind == "last" or dtype == "float32" or (kind == "sum" and dtype in ("int32", "int64")))


def _attrs(call: Captured, kind: str | None, **more: Any) -> dict[str, Any] | None:
    """The kind, whether the tensor's own elements count, and whether the order of sums does."""
    if kind is None or call.type is None or not call.type.numel or not _fits(call, kind):
        return None
    return {"kind": kind, "own": bool(call.arguments.get("include_self", True)), "ordered": call.deterministic, **more}


def along(call: Captured) -> dict[str, Any] | None:
    """The dimension that an index has the places of, which does not follow the batch."""
    given, name = call.arguments, call.target.split(".")[1]
    types = call.types[given["self"].name], call.types[given["index"].name]
    rank = len(types[0].shape)
    if (
        not rank
        or len(types[1].shape) != (rank if name.startswith("scatter") else 1)
        or types[1].dtype not in ("int64", "int32")
    ):
        return None
    dim, word = given["dim"] % rank, given.get("reduce")
    kind = "last" if name in ("scatter", "index_copy", "index_fill") else _WORDS.get(word) if word else "sum"
    plain = given.get("alpha", 1) == 1 and (word is None or name != "scatter")
    return (
        _attrs(call, kind, dim=dim, each=name.startswith("scatter")) if plain and not types[0].multiples[dim] else None
    )


def at_indices(call: Captured) -> dict[str, Any] | None:
    """The neighbouring dimensions that tensors of indices have the places of."""
    given, own = call.arguments, call.types[call.arguments["self"].name]
    dims = tuple(d for d, i in enumerate(given["indices"]) if isinstance(i, Ref))
    types = [call.types[i.name] for i in given["indices"] if isinstance(i, Ref)]
    if not dims or dims != tuple(range(dims[0], dims[-1] + 1)) or any(own.multiples[d] for d in dims):
        return None
    rank = max(len(t.shape) for t in types)
    shaped = all(t.dtype in ("int64", "int32") for t in types) and isinstance(given["values"], (Ref, int, float))
    return (
        _attrs(
            call,
            "sum" if given.get("accumulate") else "last",
            dims=dims,
            rank=rank,
            sorted=bool(given.get("accumulate")),
        )
        if shaped
        else None
    )


# Loops and lowerings


def looped(graph: OpGraph, node: Node) -> Tensor:
    """The type whose elements a scatter takes in, each once."""
    own, others = graph.type(node.inputs[0]), [graph.type(i) for i in node.inputs[1:] if isinstance(i, str)]
    if "dims" in dict(node.attrs):
        first, last, indices = node["dims"][0], node["dims"][-1], others[: len(node["dims"])]
        found: list[tuple[int, int]] = [(1, 0)] * node["rank"]
        for type_ in indices:
            for at, (size, multiple) in enumerate(zip(reversed(type_.shape), reversed(type_.multiples)), 1):
                found[-at] = (size, multiple) if size != 1 else found[-at]
        pairs = [*zip(own.shape, own.multiples)]
        pairs = [*pairs[:first], *found, *pairs[last + 1 :]]
    elif node["each"]:
        pairs = [*zip(others[0].shape, others[0].multiples)]
    else:
        pairs = [*zip(own.shape, own.multiples)]
        pairs[node["dim"]] = (others[0].shape[0], others[0].multiples[0])
    return Tensor(tuple(size for size, _ in pairs), own.dtype, tuple(multiple for _, multiple in pairs))


def scatter(builder: Builder, node: Node, loops: Index) -> Scattered:
    """The value at an index of the loops, and where it is taken in."""
    own, *rest = node.inputs
    sizes = builder.graph.type(own).sizes()
    if "dims" in dict(node.attrs):
        index, places, values = _at_indices(builder, node, loops)
    else:
        index, places, values = _along(builder, node, loops)
    value = (
        builder.value(values[0], values[1])
        if isinstance(values[0], str)
        else builder.number(f"{node.name}_value", values[0], node.type.dtype)
    )
    source, start, period = _begin(builder, node)
    return Scattered(
        node.name,
        node["kind"],
        value,
        loops,
        index,
        places,
        int(sizes[node["dims"][0] if "dims" in dict(node.attrs) else node["dim"]]),
        source,
        start,
        node["ordered"] and node["kind"] != "max" and node["kind"] != "min",
        period,
        dict(node.attrs).get("sorted", False),
    )


def _begin(builder: Builder, node: Node) -> tuple[str, float | int, int]:
    """The tensor or the number that the result begins as, and after how many elements the tensor comes again.

    Raises :class:`NotFusable` where elements of the tensor do not count.
    """
    own = node.inputs[0]
    made = builder.graph.producer(own)
    if made is not None and made.op == "expand" and (period := _period(builder.graph.type(made.inputs[0]), made.type)):
        if node["own"] and made.inputs[0] not in builder.inside:
            return made.inputs[0], 0, period
    while made is not None and made.op in _VIEWS:
        made = builder.graph.producer(made.inputs[0])
    full = made is not None and made.op == "full"
    if not node["own"] and not (full and made["value"] == KINDS[node["kind"]]):
        raise NotFusable(f"{node.name} leaves out the elements of its first operand where others are taken in")
    if own in builder.inside and not full:
        raise NotFusable(f"the tensor that {node.name} begins as is made in the same kernel")
    return ("", made["value"], 0) if full else (own, 0, 0)


def _period(of: Tensor, to: Tensor) -> int:
    """After how many elements a tensor comes again that is expanded along its first dimensions alone; 0 of others."""
    sizes, wide = of.sizes(), to.sizes()
    sizes = (1,) * (len(wide) - len(sizes)) + tuple(sizes)
    first = next((d for d, size in enumerate(sizes) if size != 1), len(sizes))
    same = sizes[first:] == tuple(wide[first:]) and all(isinstance(size, int) for size in sizes[first:])
    return of.numel if same else 0


def _place(builder: Builder, node: Node, name: str, at: Index, size: int, wraps: bool) -> sympy.Expr:
    value = builder.value(name, at)
    if wraps:
        value = builder.map(f"{node.name}_wrapped", where(x < 0, x + size, x), [value], "int64")
    return builder.place(f"{node.name}_place", value, size, kept=True)


def _along(builder: Builder, node: Node, loops: Index) -> tuple[Index, tuple[str, ...], tuple[Any, Index]]:
    """The index, its place, and what is taken in, of a scatter along one dimension."""
    own, places, source = node.inputs
    dim = node["dim"]
    place = _place(
        builder, node, places, loops if node["each"] else (loops[dim],), builder.graph.type(own).shape[dim], False
    )
    return (*loops[:dim], place, *loops[dim + 1 :]), (builder.places[place],), (source, loops)


def _at_indices(builder: Builder, node: Node, loops: Index) -> tuple[Index, tuple[str, ...], tuple[Any, Index]]:
    """The same of a scatter at tensors of indices, which are broadcast."""
    own, *rest = node.inputs
    dims, rank = node["dims"], node["rank"]
    inner, found = loops[dims[0] : dims[0] + rank], []
    for d, name in zip(dims, rest):
        sizes = builder.graph.type(name).sizes()
        at = tuple(sympy.Integer(0) if s == 1 else i for s, i in zip(sizes, inner[rank - len(sizes) :]))
        found.append(_place(builder, node, name, at, builder.graph.type(own).shape[d], True))
    values = rest[-1]
    index = (*loops[: dims[0]], *found, *loops[dims[0] + rank :])
    return (
        index,
        tuple(builder.places[p] for p in found),
        (values, builder.broadcast(values, looped(builder.graph, node), loops)),
    )
