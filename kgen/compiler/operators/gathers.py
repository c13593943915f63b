"""Values at other indices: concatenation, padding, gathering, and tensors that are made of indices alone.

    cat((a, b))[i]        i < 3 ? a[i] : b[i - 3]         each operand is loaded under the mask of its own part
    pad(x, (1, 1))[i]     0 <= i - 1 < n ? x[i - 1] : 0
    embedding(w, x)[i,j]  w[x[i], j]                      a load whose index holds a value
    arange(2, n)[i]       2 + i

Each function reads the attributes of a call, or lowers a node: it asks a program's builder for operands at indices.

An index out of range is undefined, as in PyTorch on CUDA. A kernel reads the nearest element of the tensor then, and
never outside of it.
"""

from __future__ import annotations

from typing import Any, Mapping

from kgen.compiler.graph.dtypes import is_float
from kgen.compiler.graph.graph import Node, NotFusable, Ref
from kgen.compiler.graph.library_call import DEVICE, LibraryCall, Literal, Many, dtype_named, torch_
from kgen.compiler.loops.expr import CHOICE, const, equal, where, x, y
from kgen.compiler.loops.indices import moved
from kgen.compiler.operators.op import Builder, Captured, Index


def _fixed(call: Captured, argument: str, dim: int) -> bool:
    """Whether a dimension of an operand keeps its size at any batch."""
    return not call.types[call.arguments[argument].name].multiples[dim]


# Attributes of calls


def concatenated(call: Captured) -> dict[str, Any] | None:
    """The dimension that operands of one rank are put together along; a stack has it in addition."""
    types = [call.types.get(t.name) for t in call.arguments["tensors"] if isinstance(t, Ref)]
    if call.type is None or len(types) != len(call.arguments["tensors"]):
        return None
    rank = len(call.type.shape)
    dim = call.arguments.get("dim", 0) % rank
    stacked = call.target.startswith("aten.stack")
    same = all(t is not None and t.numel and len(t.shape) == rank - stacked for t in types)
    return {"dim": dim} if same and not call.type.multiples[dim] else None


def padded(call: Captured) -> dict[str, Any] | None:
    """How many elements stand before and behind each dimension, from the first on; negative numbers take some away."""
    shape, pad, value = call.shape("self"), call.arguments["pad"], call.arguments.get("value", 0)
    if not shape or not all(isinstance(p, int) for p in pad) or not isinstance(value, (int, float)):
        return None
    pairs = [(0, 0)] * (len(shape) - len(pad) // 2) + list(zip(pad[::2], pad[1::2]))[::-1]
    fixed = all(_fixed(call, "self", d) for d, pair in enumerate(pairs) if any(pair))
    return {"pad": tuple(pairs), "value": value} if fixed else None


def gathered(call: Captured) -> dict[str, Any] | None:
    """The dimension that is read at the places of an index."""
    rank = len(call.shape("self"))
    index = call.types[call.arguments["index"].name]
    if (
        not rank
        or len(index.shape) != (rank if call.target.startswith("aten.gather") else 1)
        or not _is_index(index.dtype)
    ):
        return None
    dim = call.arguments["dim"] % rank
    return {"dim": dim} if _fixed(call, "self", dim) else None


def embedded(call: Captured) -> dict[str, Any] | None:
    """The rows of a table at the places of an index."""
    return (
        {"dim": 0}
        if _is_index(call.types[call.arguments["indices"].name].dtype) and _fixed(call, "weight", 0)
        else None
    )


def indexed(call: Captured) -> dict[str, Any] | None:
    """The neighbouring dimensions that are indexed by tensors."""
    indices = call.arguments["indices"]
    dims = tuple(d for d, i in enumerate(indices) if isinstance(i, Ref))
    if not dims or dims != tuple(range(dims[0], dims[-1] + 1)):
        return None
    types = [call.types[i.name] for i in indices if isinstance(i, Ref)]
    fits = all(_is_index(t.dtype) for t in types) and all(_fixed(call, "self", d) for d in dims)
    return {"dims": dims, "rank": max(len(t.shape) for t in types)} if fits else None


def filled(call: Captured) -> dict[str, Any] | None:
    """The number that every element is."""
    name = call.target.split(".")[1]
    given = [call.arguments[word] for word in ("fill_value", "value", "s") if word in call.arguments]
    value = given[0] if given else 1 if "ones" in name else 0
    value = value.value if isinstance(value, Literal) else value
    if not isinstance(value, (int, float)) or call.type is None:
        return None
    return {"value": value, "sizes": call.type.sizes(), "dtype": call.type.dtype}


def full_call(attrs: Mapping[str, Any]) -> LibraryCall:
    """The library's call: of the sizes themselves, where the operator was told of a tensor like it."""
    return torch_("full", Many(tuple(attrs["sizes"])), attrs["value"], dtype=dtype_named(attrs["dtype"]), device=DEVICE)


def counted(call: Captured) -> dict[str, Any] | None:
    """The first number and the step between numbers."""
    start, step = call.arguments.get("start", 0), call.arguments.get("step", 1)
    whole = isinstance(start, int) and isinstance(step, int)
    numbers = whole or (
        all(isinstance(value, (int, float)) for value in (start, step))
        and call.type is not None
        and is_float(call.type.dtype)
    )
    return {"start": start, "step": step} if numbers else None


def evenly_spaced(call: Captured) -> dict[str, Any] | None:
    """The first and the last number, and how many there are."""
    start, end, steps = (call.arguments[name] for name in ("start", "end", "steps"))
    numbers = all(isinstance(value, (int, float)) for value in (start, end)) and isinstance(steps, int) and steps > 1
    return {"start": start, "end": end, "steps": steps} if numbers and call.type and is_float(call.type.dtype) else None


def overwritten(call: Captured) -> dict[str, Any] | None:
    """The part of a tensor that another tensor stands in: every ``step``-th element of ``dim`` from ``start`` on.

    The part may be a whole dimension, which may follow the batch.
    """
    types = [call.types[call.arguments[name].name] for name in ("self", "src")]
    sizes = types[0].sizes()
    if not sizes or call.type is None or types[0].dtype != types[1].dtype:
        return None
    dim, step, selected = call.arguments["dim"] % len(sizes), call.arguments.get("step", 1), "index" in call.arguments
    start = call.arguments["index"] if selected else call.arguments.get("start") or 0
    whole = not selected and types[1].sizes()[dim] == sizes[dim]
    if not whole and not (isinstance(sizes[dim], int) and isinstance(start, int) and isinstance(step, int)):
        return None
    return {
        "dim": dim,
        "start": 0 if whole else min(start + sizes[dim] if start < 0 else start, sizes[dim]),
        "step": step,
        "selected": selected,
    }


def shuffled(call: Captured) -> dict[str, Any] | None:
    """How many pixels of each dimension stand for one of the other image."""
    (factor,) = (value for name, value in call.arguments.items() if name.endswith("scale_factor"))
    return {"factor": factor} if not any(call.types[call.arguments["self"].name].multiples[-3:]) else None


def grouped(call: Captured) -> dict[str, Any] | None:
    """The groups of channels that are dealt out in turn."""
    return {"groups": call.arguments["groups"]} if _fixed(call, "self", 1) else None


def _is_index(dtype: str) -> bool:
    return dtype in ("int64", "int32")


# Lowerings


def concatenate(builder: Builder, node: Node, index: Index) -> str:
    """The value of the operand in whose part the index lies."""
    dim, start = node["dim"], 0
    parts = []
    if len(node.inputs) > 1 and any(_is_reduced(builder, name) for name in node.inputs):
        raise NotFusable(f"each row of {node.name} would reduce the rows of all its parts")
    for name in node.inputs:
        shape = builder.graph.type(name).shape
        stacked = len(shape) < len(node.type.shape)
        size = 1 if stacked else shape[dim]
        inside = moved(index[dim], -start)
        at = (*index[:dim], *(() if stacked else (inside,)), *index[dim + 1 :])
        mask = builder.within(inside, size)
        parts.append((start + size, builder.masked(mask, lambda name=name, at=at: builder.value(name, at))))
        start += size
    found = parts[-1][1]
    for end, value in reversed(parts[:-1]):
        found = builder.choose(node, index[dim], end, value, found)
    return found


def _is_reduced(builder: Builder, name: str) -> bool:
    """Whether a reduction of the same kernel makes the value, of more elements than one thread takes."""
    while name in builder.inside and (made := builder.graph.producer(name)) is not None and made.values:
        if ("dims" in dict(made.attrs) and "keepdim" in dict(made.attrs)) or made.op.startswith("softmax"):
            return ("of_few", True) not in made.attrs
        name = made.values[0]
    return False


def pad(builder: Builder, node: Node, index: Index) -> str:
    """The operand, and the number outside of it."""
    sizes = builder.graph.type(node.inputs[0]).sizes()
    at = tuple(i - before for i, (before, _) in zip(index, node["pad"]))
    bounds = [(i, size) for i, size, pair in zip(at, sizes, node["pad"]) if max(pair) > 0]
    return builder.filled(node, bounds, lambda: builder.value(node.inputs[0], at), node["value"])


def overwrite(builder: Builder, node: Node, index: Index) -> str:
    """The element of the part where the index lies in it, else the tensor's own."""
    whole, part = node.inputs
    dim, step, sizes = node["dim"], node["step"], builder.graph.type(part).sizes()
    at = index[dim] - node["start"]
    if node["selected"]:
        extent, inner = 1, ()
    elif sizes[dim] == node.type.sizes()[dim]:
        return builder.value(part, index)
    else:
        extent, inner = (sizes[dim] - 1) * step + 1, (builder.axes.divide(at, step),)
    if builder.outside(at, extent):
        return builder.value(whole, index)
    mask = builder.within(at, extent)
    mask += builder.within(builder.axes.modulo(index[dim] + -node["start"] % step, step), 1) if step > 1 else ()
    found = builder.masked(mask, lambda: builder.value(part, (*index[:dim], *inner, *index[dim + 1 :])))
    return (
        builder.map(node.name, CHOICE, [builder.holds(mask), found, builder.value(whole, index)], node.type.dtype)
        if mask
        else found
    )


def flip(builder: Builder, node: Node, index: Index) -> str:
    """The element at the same distance from the end. PyTorch copies it: a flip is no view."""
    at = (size - 1 - i if d in node["dims"] else i for d, (i, size) in enumerate(zip(index, node.type.shape)))
    return builder.value(node.inputs[0], tuple(at))


def roll(builder: Builder, node: Node, index: Index) -> str:
    """Dimensions shifted, with what is pushed out at one end put in at the other."""
    by, modulo = dict(zip(node["dims"], node["shifts"])), builder.axes.modulo
    at = (modulo(i + -by[d] % size, size) if d in by else i for d, (i, size) in enumerate(zip(index, node.type.shape)))
    return builder.value(node.inputs[0], tuple(at))


def repeat(builder: Builder, node: Node, index: Index) -> str:
    """Dimensions repeated as wholes; new dimensions stand in front."""
    own = builder.graph.type(node.inputs[0]).sizes()
    new = len(index) - len(own)
    sizes = zip(index[new:], node.type.sizes()[new:], own)
    return builder.value(
        node.inputs[0], tuple(i if size == all_ else builder.axes.modulo(i, size) for i, all_, size in sizes)
    )


def pixel_shuffle(builder: Builder, node: Node, index: Index) -> str:
    """Channels as pixels: ``y[c, h, w]`` is ``x[c * f * f + h % f * f + w % f, h // f, w // f]``."""
    factor, axes, (*front, channel, row, col) = node["factor"], builder.axes, index
    place = channel * factor**2 + axes.modulo(row, factor) * factor + axes.modulo(col, factor)
    return builder.value(node.inputs[0], (*front, place, axes.divide(row, factor), axes.divide(col, factor)))


def pixel_unshuffle(builder: Builder, node: Node, index: Index) -> str:
    """Pixels as channels, the inverse of :func:`pixel_shuffle`."""
    factor, axes, (*front, channel, row, col) = node["factor"], builder.axes, index
    within = axes.modulo(channel, factor**2)
    place = row * factor + axes.divide(within, factor), col * factor + axes.modulo(within, factor)
    return builder.value(node.inputs[0], (*front, axes.divide(channel, factor**2), *place))


def channel_shuffle(builder: Builder, node: Node, index: Index) -> str:
    """The channels of each group in turn."""
    groups, axes, (batch, channel, *rest) = node["groups"], builder.axes, index
    place = axes.modulo(channel, groups) * (node.type.shape[1] // groups) + axes.divide(channel, groups)
    return builder.value(node.inputs[0], (batch, place, *rest))


def gather(builder: Builder, node: Node, index: Index) -> str:
    """``x[.., index[i, j, ..], ..]``; of ``index_select``, the index has the one dimension alone."""
    source, places = node.inputs
    dim = node["dim"]
    at = index if len(builder.graph.type(places).shape) == len(index) and node.op == "gather" else (index[dim],)
    return _at_places(builder, node, source, index, {dim: builder.value(places, tuple(at))})


def embed(builder: Builder, node: Node, index: Index) -> str:
    """``table[index[i, ..], j]``."""
    table, places = node.inputs
    return _at_places(builder, node, table, (index[0], index[-1]), {0: builder.value(places, tuple(index[:-1]))})


def index_tensor(builder: Builder, node: Node, index: Index) -> str:
    """``x[:, i[a, b], j[a, b], :]``: the indexed dimensions become those of the indices, which are broadcast."""
    source, *places = node.inputs
    first, rank = node["dims"][0], node["rank"]
    inner = index[first : first + rank]
    found = {}
    for d, name in zip(node["dims"], places):
        sizes = builder.graph.type(name).sizes()
        at = tuple(builder.axes.constant(0) if s == 1 else i for s, i in zip(sizes, inner[rank - len(sizes) :]))
        value = builder.value(name, at)
        size = builder.graph.type(source).shape[d]
        found[d] = builder.map(f"{node.name}_wrapped", where(x < 0, x + size, x), [value], builder.steps[value].dtype)
    whole = (*index[:first], *(builder.axes.constant(0) for _ in node["dims"]), *index[first + rank :])
    return _at_places(builder, node, source, whole, found)


def _at_places(builder: Builder, node: Node, source: str, index: Index, values: dict[int, str]) -> str:
    """The element of ``x`` at the index, with values of the program in some dimensions."""
    at = list(index)
    for d, value in values.items():
        at[d] = builder.place(f"{node.name}_place", value, builder.graph.type(source).shape[d])
    return builder.value(source, tuple(at))


def fill(builder: Builder, node: Node, index: Index) -> str:
    """The same number everywhere."""
    return builder.number(node.name, node["value"], node.type.dtype)


def count(builder: Builder, node: Node, index: Index) -> str:
    """The index itself, scaled and shifted."""
    start, step = node["start"], node["step"]
    if isinstance(start, int) and isinstance(step, int):
        return builder.position(node.name, start + step * index[0], node.type.dtype)
    at = builder.position(f"{node.name}_number", index[0], "float32")
    return builder.map(node.name, float(start) + float(step) * x, [at])


def space(builder: Builder, node: Node, index: Index) -> str:
    """Numbers of equal distance, counted from the nearer end, as PyTorch does: the last one is exact."""
    start, end, last = node["start"], node["end"], node["steps"] - 1
    at, step = builder.position(f"{node.name}_number", index[0], "float32"), (end - start) / last
    number = where(x < float((last + 1) // 2), float(start) + step * x, float(end) - step * (float(last) - x))
    return builder.map(node.name, number, [at])


def identity_matrix(builder: Builder, node: Node, index: Index) -> str:
    """One where both indices are the same, else zero."""
    dtype = node.type.dtype
    places = [builder.position(f"{node.name}_{word}", i, "int64") for word, i in zip(("row", "col"), index)]
    return builder.map(node.name, where(equal(x, y), const(1, dtype), const(0, dtype)), places, dtype)
