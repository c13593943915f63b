"""Rewrites of scales and shifts: batch norms as such, several as one, and those that go into a linear layer's
weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable

from kgen.compiler.graph.graph import FoldedWeight, Node, OpGraph, Tensor
from kgen.compiler.graph.library_call import (
    LibraryCall,
    Span,
    Value,
    W,
    X,
    Y,
    Z,
    aten,
    functional,
    rounded,
    torch_,
    widened,
    with_operands,
)
from kgen.compiler.rewrites import norms


def batchnorm_to_affine(graph: OpGraph) -> OpGraph:
    """Batch norm in eval mode as ``x * scale + shift``, both computed from its weights in float64."""
    for node in graph.nodes:
        if node.op != "batch_norm" or node["training"] or "running_mean" not in node["roles"]:
            continue
        roles = dict(zip(node["roles"], node.inputs))
        rank = len(node.type.shape)
        channels = node.type.shape[1] if rank > 1 else node.type.shape[0]
        type_ = Tensor((channels,) + (1,) * (rank - 2))
        eps = node["eps"]
        weight = roles.get("weight")
        scale, shift = graph.fresh(f"{node.name}_scale"), graph.fresh(f"{node.name}_shift")
        scale_sources = (roles["running_var"], *((weight,) if weight else ()))
        inverse = (X.method("double") + eps).method("rsqrt")
        scaled = Y.method("double") * inverse if weight else inverse
        # The shift repeats the scale in float64: through the rounded one it would lose what large means need.
        shift_sources = (*scale_sources, roles["running_mean"], *((roles["bias"],) if "bias" in roles else ()))
        mean, bias = (Value(len(scale_sources) + number).method("double") for number in range(2))
        shifted = bias - mean * scaled if "bias" in roles else -mean * scaled
        made = [call.method("float") for call in (scaled, shifted)]
        if rank > 2:
            made = [call.method("reshape", -1, *[1] * (rank - 2)) for call in made]
        graph = graph.with_folded(
            FoldedWeight(scale, type_, made[0], scale_sources), FoldedWeight(shift, type_, made[1], shift_sources)
        )
        graph = graph.with_node(
            replace(
                node,
                op="lerp_affine",
                inputs=(roles["input"], scale, shift),
                call=_affine_call(node.type),
                attrs=(),
            )
        )
    return graph


def _affine_call(type_: Tensor) -> LibraryCall:
    """The library call of ``x * scale + shift`` with scale and shift in float32."""
    return rounded(widened(torch_("addcmul", Z, X, Y), type_.dtype), type_.dtype)


def split_batchnorm(graph: OpGraph) -> OpGraph:
    """Batch norm in train mode as moments over the batch (a node of its own) and a normalisation.

    The moments are a (2, channels) tensor: the mean, and ``weight / sqrt(var + eps)``. Their node updates the
    running statistics and counts the batch. With more than two dimensions, mean, variance and updates are nodes.
    """
    for node in graph.nodes:
        if node.op != "batch_norm" or not node["training"]:
            continue
        roles = dict(zip(node["roles"], node.inputs))
        x = roles["input"]
        if len(node.type.shape) < 2 or node.type.multiples[1] or ("running_mean" in roles) != ("running_var" in roles):
            continue
        if len(node.type.shape) > 2:
            graph = norms.split_channels(graph, node, roles)
            continue
        channels = node.type.shape[1]
        counting = _counting(graph, roles.get("running_mean"))
        if counting is not None:
            roles["counter"] = counting.inputs[0]
            graph = replace(graph, nodes=tuple(n for n in graph.nodes if n is not counting))
        names = [r for r in ("input", "weight", "running_mean", "running_var", "counter") if r in roles]
        moments = Node(
            graph.fresh(f"{node.name}_moments"),
            "batch_moments",
            tuple(roles[r] for r in names),
            Tensor((2, channels)),
            None,
            (("roles", tuple(names)), ("momentum", node["momentum"]), ("eps", node["eps"])),
            effect="running_mean" in roles,
        )
        vector = Tensor((channels,))
        mean = Node(f"{node.name}_mean", "select", (moments.name,), vector, X[0], (("dim", 0), ("at", 0)))
        scale = Node(f"{node.name}_scale", "select", (moments.name,), vector, X[1], (("dim", 0), ("at", 1)))
        inputs = (x, mean.name, scale.name, *((roles["bias"],) if "bias" in roles else ()))
        apply = Node(
            node.name,
            "normalise_affine" if "bias" in roles else "normalise",
            inputs,
            node.type,
            rounded((X - Y) * Z + W if "bias" in roles else (X - Y) * Z, node.type.dtype),
        )
        graph = graph.with_nodes_for(node.name, (moments, mean, scale, apply))
    return graph


def _counting(graph: OpGraph, running_mean: str | None) -> Node | None:
    """The node that adds one to the batch counter that belongs to a running mean, if nothing else reads it."""
    paths = {w.name: w.path for w in graph.weights}
    if running_mean is None:
        return None
    counter = paths[running_mean].removesuffix("running_mean") + "num_batches_tracked"
    for node in graph.nodes:
        counts = node.op == "aten.add_.Tensor" and node.call == aten("add_.Tensor", X, 1)
        if counts and paths.get(node.inputs[0]) == counter and graph.users(node.inputs[0]) == (node,):
            return node if not graph.users(node.name) and node.name not in graph.returns else None
    return None


def merge_affine(graph: OpGraph) -> OpGraph:
    """Make one scale and shift of those after one another, where both are weights or numbers."""
    return _merge_pairs(graph, _merge_affine_pair)


def fold_batchnorm_into_linear(graph: OpGraph) -> OpGraph:
    """``linear(x) * scale + shift`` with scale and shift in the layer's weight rows and bias."""
    return _merge_pairs(graph, lambda g, inner, outer: _fold(g, inner, outer, "lerp_affine"))


def pull_scale_into_linear(graph: OpGraph) -> OpGraph:
    """``linear(x) * scale``, for each feature or for all, with the scale in the layer's weight rows and bias."""
    return _merge_pairs(graph, lambda g, inner, outer: _fold(g, inner, outer, "mul"))


def _merge_pairs(graph: OpGraph, merge: Callable[[OpGraph, Node, Node], OpGraph | None]) -> OpGraph:
    """Apply ``merge(graph, inner, outer)`` to producer-user pairs until nothing changes."""
    changed = True
    while changed:
        changed = False
        for outer in graph.nodes:
            for name in outer.values:
                inner = graph.producer(name)
                merged = merge(graph, inner, outer) if inner is not None and graph.feeds_only(name, outer) else None
                if merged is not None:
                    graph, changed = merged, True
                    break
            if changed:
                break
    return graph


@dataclass(frozen=True)
class _Affine:
    """``x * scale + shift``; ``scale`` is a weight's name or a number, ``shift`` a weight's name or absent."""

    x: str
    scale: str | float
    shift: str | None


def _affine(graph: OpGraph, node: Node) -> _Affine | None:
    """The node as scale and shift by weights, if it is that."""
    if node.op == "lerp_affine" and graph.is_weight(node.inputs[1]) and graph.is_weight(node.inputs[2]):
        return _Affine(node.inputs[0], node.inputs[1], node.inputs[2])
    if node.op == "mul" and node.type.dtype == "float32":
        for x, scale in (node.inputs, node.inputs[::-1]):
            if isinstance(x, str) and graph.producer(x) is not None:
                if isinstance(scale, (int, float)) or (graph.is_weight(scale) and graph.type(scale).dtype == "float32"):
                    return _Affine(x, scale if isinstance(scale, str) else float(scale), None)
    return None


def _merge_affine_pair(graph: OpGraph, inner: Node, outer: Node) -> OpGraph | None:
    a, b = _affine(graph, inner), _affine(graph, outer)
    if a is None or b is None or b.x != inner.name or outer.type.shape != inner.type.shape:
        return None
    if a.shift is None and isinstance(a.scale, float) and isinstance(b.scale, float):
        return None  # constant factors are merge_scalar_factors' business
    graph, scale = _folded(graph, f"{outer.name}_scale", X * Y, (a.scale, b.scale))
    shift = b.shift
    if a.shift is not None:
        call = X * Y + Z if b.shift else X * Y
        graph, shift = _folded(graph, f"{outer.name}_shift", call, (a.shift, b.scale, *((b.shift,) if b.shift else ())))
    graph = graph.without(inner.name, a.x)
    if shift is None:
        node = replace(outer, op="mul", inputs=(a.x, scale), call=torch_("mul", X, Y), attrs=())
    else:
        call = _affine_call(outer.type)
        node = replace(outer, op="lerp_affine", inputs=(a.x, scale, shift), call=call, attrs=())
    return graph.with_node(node)


def _folded(graph: OpGraph, stem: str, call: LibraryCall, operands: tuple[str | float, ...]) -> tuple[OpGraph, str]:
    """A new folded weight from weights and numbers."""
    sources = tuple(o for o in operands if isinstance(o, str))
    values = [Value(sources.index(o)) if isinstance(o, str) else o for o in operands]
    shape: tuple[int, ...] = ()
    for source in sources:
        shape = _broadcast(shape, graph.type(source).shape)
    name = graph.fresh(stem)
    call = with_operands(call, lambda value: values[value.number])
    return graph.with_folded(FoldedWeight(name, Tensor(shape), call, sources)), name


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    rank = max(len(a), len(b))
    a, b = (1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b
    return tuple(max(x, y) for x, y in zip(a, b))


def _fold(graph: OpGraph, inner: Node, outer: Node, op: str) -> OpGraph | None:
    """``inner`` (linear) with the scale and shift of ``outer`` in its weight and bias."""
    found = _affine(graph, outer) if outer.op == op else None
    if inner.op != "linear" or found is None or found.x != inner.name or not isinstance(found.scale, str):
        return None
    features = inner.type.shape[-1]
    shape = graph.type(found.scale).shape
    if outer.type.shape != inner.type.shape or shape not in ((features,), (1,), ()):
        return None
    if not graph.is_weight(inner.inputs[1]) or (len(inner.inputs) > 2 and not graph.is_weight(inner.inputs[2])):
        return None
    x, weight, *bias = inner.inputs
    column = Y[Span(), None] if shape == (features,) and features > 1 else Y
    new_weight = graph.fresh(f"{inner.name}_weight")
    folded = [FoldedWeight(new_weight, graph.type(weight), X * column, (weight, found.scale))]
    operands = [x, new_weight]
    if bias or found.shift:
        new_bias = graph.fresh(f"{inner.name}_bias")
        if bias and found.shift:
            call, sources = X * Y + Z, (bias[0], found.scale, found.shift)
        elif bias:
            call, sources = X * Y, (bias[0], found.scale)
        else:
            call, sources = X.method("expand", features), (found.shift,)
        folded.append(FoldedWeight(new_bias, Tensor((features,)), call, sources))
        operands.append(new_bias)
    call = functional("linear", *map(Value, range(len(operands))))
    graph = graph.with_folded(*folded)
    graph = graph.with_node(replace(inner, inputs=tuple(operands), call=call))
    return graph.without(outer.name, inner.name)
