"""Norms taken apart: reductions as nodes of their own, then the pointwise operators that use them.

    batch norm, (N, C, H, W)     mean, variance (C) of x over N, H, W; running statistics; (x - mean) * scale + bias
    group norm, (N, C, H, W)     mean, variance (N, G, 1) of x as (N, G, C / G * H * W); normalised; back to x's shape;
    affine
    layer norm, softmax          the same reductions as in one node, so that a plan may cut behind them
    behind a convolution         mean and variance of each channel of each image first, which its kernel finds as it
                                 stores x; those of a group or of a channel follow from them
    behind group norm of a product   sums, means and extremes of a row by way of each group's

Means, variances and what is made of them are float32 also where x is of a half type. A kernel may still hold all of it.
Where rows are few and long, many blocks reduce, and a second kernel applies.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Collection, Mapping, Sequence

from kgen.compiler.graph.convolutions import TARGETS
from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.graph.graph import Node, Operand, OpGraph, Tensor
from kgen.compiler.graph.library_call import LibraryCall, W, X, Y, Z, aten, rounded, torch_, widened
from kgen.compiler.graph.source import reshape_call
from kgen.compiler.loops.transposes import IN_TILES, LEAST_EXTENT
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS
from kgen.compiler.rewrites.view_nodes import in_order

FEW_ROWS, LONG_ROW = 512, 16384  # rows, and elements of each: blocks of one kernel would be too few, and long at work


def _node(
    graph: OpGraph,
    stem: str,
    op: str,
    inputs: tuple[Operand, ...],
    type_: Tensor,
    call: LibraryCall | None = None,
    **attrs: object,
) -> Node:
    return Node(graph.fresh(stem), op, inputs, type_, call, tuple(attrs.items()))


def _view(graph: OpGraph, stem: str, source: str, type_: Tensor) -> Node:
    return _node(graph, stem, "view", (source,), type_, reshape_call(type_))


def _moments(
    graph: OpGraph, node: Node, source: str, type_: Tensor, dims: tuple[int, ...], keepdim: bool
) -> list[Node]:
    """The mean and the variance of a value over some dimensions; its dtype is that of the node's first operand."""
    x = node.inputs[0]
    both = {"dims": dims, "keepdim": keepdim}
    keep = {"keepdim": True} if keepdim else {}
    mean = _node(
        graph,
        f"{node.name}_mean",
        "moments_mean",
        (source,),
        type_,
        widened(torch_("mean", X, dims, **keep), graph.type(x).dtype),
        **both,
    )
    call = widened(torch_("var", X, dims, correction=0, **keep), graph.type(x).dtype)
    return [mean, _node(graph, f"{node.name}_variance", "variance", (source,), type_, call, **both, correction=0)]


def _inverse_deviation(graph: OpGraph, node: Node, variance: Node, *weight: str) -> Node:
    """``rsqrt(variance + eps)``, times the norm's weight if that is given."""
    op = "scaled_inverse_deviation" if weight else "inverse_deviation"
    inverse = torch_("rsqrt", X + node["eps"])
    call = Y * inverse if weight else inverse
    return _node(graph, f"{node.name}_scale", op, (variance.name, *weight), variance.type, call, eps=node["eps"])


def _affine(node: Node, normal: Node, operands: Sequence[Operand]) -> Node:
    """The node as a scale of ``normal``, and a shift where there are two operands."""
    op, call = ("lerp_affine", torch_("addcmul", Z, X, Y)) if len(operands) > 1 else ("mul", torch_("mul", X, Y))
    return replace(node, op=op, inputs=(normal.name, *operands), call=call, attrs=())


def _of_images(graph: OpGraph, node: Node, source: str) -> list[Node]:
    """The mean and the variance of each channel of each image."""
    shape, multiples = node.type.shape, node.type.multiples
    return _moments(graph, node, source, Tensor(shape[:2], multiples=multiples[:2]), tuple(range(2, len(shape))), False)


def _of_parts(
    graph: OpGraph, name: str, means: str, variances: str, type_: Tensor, correction: float = 0.0, **over: object
) -> list[Node]:
    """The variance of several parts of one size: that of their means, and the mean of their variances."""
    (dim,), keep = over["dims"], {"keepdim": True} if over["keepdim"] else {}
    call = torch_("var", X, (dim,), correction=correction, **keep)
    between = _node(graph, f"{name}_between", "variance", (means,), type_, call, **over, correction=correction)
    call = torch_("sum", X, (dim,), **keep) / (X.member("shape")[dim] - correction)
    within = _node(graph, f"{name}_within", "corrected_mean", (variances,), type_, call, **over, correction=correction)
    return [between, within, _node(graph, name, "add", (between.name, within.name), type_, torch_("add", X, Y))]


def split_channels(graph: OpGraph, node: Node, roles: Mapping[str, str], by_image: bool = False) -> OpGraph:
    """Batch norm in train mode over all dimensions but the second, with its running statistics.

    With ``by_image``, moments of each image come first.
    """
    shape = node.type.shape
    dims = tuple(d for d in range(len(shape)) if d != 1)
    channels, wide = Tensor((shape[1],)), Tensor((shape[1],) + (1,) * (len(shape) - 2))
    if by_image:
        of_images = _of_images(graph, node, roles["input"])
        parts, over = (*(n.name for n in of_images), channels), {"dims": (0,), "keepdim": False}
        mean = _node(
            graph, f"{node.name}_mean_of_all", "moments_mean", parts[:1], channels, torch_("mean", X, (0,)), **over
        )
        variances = _of_parts(graph, f"{node.name}_variance_of_all", *parts, **over)
        unbiased = _of_parts(graph, f"{node.name}_unbiased", *parts, 1.0 / math.prod(shape[2:]), **over)
    else:
        of_images: list[Node] = []
        mean, *variances = _moments(graph, node, roles["input"], channels, dims, False)
        unbiased = [replace(
            variances[0], name=graph.fresh(f"{node.name}_unbiased"), op="unbiased_variance",
            call=widened(torch_("var", X, dims), graph.type(roles["input"]).dtype),
            attrs=(("dims", dims), ("keepdim", False), ("correction", 1)),
        )]  # fmt: skip
    variance, nodes = variances[-1], [*of_images, mean, *variances]
    if "running_mean" in roles:
        kept_as = graph.type(roles["running_mean"]).dtype
        new = Y.method("to", X.member("dtype")) if is_narrow(kept_as) else Y
        update = aten("lerp_.Scalar", X, new, node["momentum"])
        factors = {"keep": 1.0 - node["momentum"], "momentum": node["momentum"]}
        kept = [
            replace(
                _node(
                    graph,
                    f"{node.name}_{role}",
                    "moving_average",
                    (roles[role], new.name),
                    replace(channels, dtype=kept_as),
                    update,
                    **factors,
                ),
                effect=True,
            )
            for role, new in (("running_mean", mean), ("running_var", unbiased[-1]))
        ]
        nodes = [*of_images, mean, *unbiased, *kept, *variances]
    scale = _inverse_deviation(graph, node, variance, *((roles["weight"],) if "weight" in roles else ()))
    operands = [mean.name, scale.name, *((roles["bias"],) if "bias" in roles else ())]
    types = [channels, channels, graph.type(roles["bias"]) if "bias" in roles else channels]
    views = [_view(graph, f"{name}_wide", name, replace(wide, dtype=of.dtype)) for name, of in zip(operands, types)]
    apply = _applied(node, roles["input"], [v.name for v in views])
    return graph.with_nodes_for(node.name, (*nodes, scale, *views, apply))


def _applied(node: Node, x: str, operands: list[str]) -> Node:
    """The node as ``(x - mean) * scale``, with a bias where there is one."""
    op, call = ("normalise_affine", (X - Y) * Z + W) if len(operands) > 2 else ("normalise", (X - Y) * Z)
    return replace(node, op=op, inputs=(x, *operands), call=rounded(call, node.type.dtype), attrs=(), effect=False)


def reduce_images_first(graph: OpGraph) -> OpGraph:
    """Norms and sums behind a convolution by way of what each channel of an image comes to: its kernel finds that.

    These are batch norm in train mode, group norm, and sums, means and extremes over all pixels and more.
    """
    for node in graph.nodes:
        if node.op in _TWO_STEPS and _behind(graph, node.inputs[0], TARGETS):
            graph = _split_reduction(graph, node)
            continue
        roles = dict(zip(node["roles"], node.inputs)) if node.op in ("batch_norm", "group_norm") else {}
        if (
            not roles
            or len(node.type.shape) < 3
            or any(node.type.multiples[1:])
            or not _behind(graph, roles["input"], TARGETS)
        ):
            continue
        if node.op == "group_norm":
            graph = _split_groups(graph, node, roles, by_image=True)
        elif node["training"] and ("running_mean" in roles) == ("running_var" in roles):
            graph = split_channels(graph, node, roles, by_image=True)
    return graph


#: Reductions of reductions: over pixels first, then over the other dimensions.
_TWO_STEPS = ("sum", "mean", "amax", "amin")


def _split_reduction(graph: OpGraph, node: Node) -> OpGraph:
    """A reduction over all pixels and the channels or images as one over the pixels, then one over what is left."""
    source = graph.type(node.inputs[0])
    pixels = tuple(range(2, len(source.shape)))
    rest = tuple(d for d in node["dims"] if d < 2)
    if not pixels or not rest or node["dims"] != (*rest, *pixels):
        return graph
    keep = node["keepdim"]
    type_ = Tensor(
        source.shape[:2] + (1,) * len(pixels) * keep, multiples=source.multiples[:2] + (0,) * len(pixels) * keep
    )
    of_pixels, of_rest = (torch_(node.op, X, dims, keepdim=keep) for dims in (pixels, rest))
    first = _node(graph, f"{node.name}_of_pixels", node.op, node.inputs, type_, of_pixels, dims=pixels, keepdim=keep)
    last = replace(node, inputs=(first.name,), call=of_rest, attrs=(("dims", rest), ("keepdim", keep)))
    return graph.with_nodes_for(node.name, (first, last))


def _behind(graph: OpGraph, value: str, operators: Collection[str]) -> Node | None:
    """A node of one of these operators that only pointwise operators separate from the value."""
    seen, waiting = set(), [value]
    while waiting:
        node = graph.producer(waiting.pop())
        if node is None or node.name in seen:
            continue
        if node.op in operators:
            return node
        seen.add(node.name)
        waiting += node.values if node.op in OPS and OPS[node.op].kind is Kind.POINTWISE else ()
    return None


def reduce_groups_first(graph: OpGraph) -> OpGraph:
    """Sums, means and extremes of rows behind group norm and a product by way of each group's: its kernel finds
    that."""
    products = [name for name, op in OPS.items() if op.kind is Kind.CONTRACTION and name not in TARGETS]
    for node in graph.nodes:
        norm = _behind(graph, node.inputs[0], ("group_norm",)) if node.op in _TWO_STEPS else None
        if norm and node["dims"] == (1,) and len(norm.type.shape) == 2 and _behind(graph, norm.inputs[0], products):
            graph = _split_rows(graph, node, norm["groups"])
    return graph


def _split_rows(graph: OpGraph, node: Node, groups: int) -> OpGraph:
    """A reduction along rows as one of each group of columns, then one of those; sums between them are of float32."""
    x = node.inputs[0]
    (rows, cols), (multiple, _) = graph.type(x).shape, graph.type(x).multiples
    split = Tensor((rows, groups, cols // groups), graph.type(x).dtype, (multiple, 0, 0))
    extreme = node.op in ("amax", "amin")
    type_ = Tensor((rows, groups), node.type.dtype if extreme else "float32", (multiple, 0))
    parts = _view(graph, f"{node.name}_groups", x, split)
    of_group, of_row = (
        torch_(node.op, X, (2,), keepdim=False),
        rounded(torch_(node.op, X, (1,), keepdim=node["keepdim"]), node.type.dtype),
    )
    found = of_group if extreme else widened(of_group, graph.type(x).dtype)
    first = _node(graph, f"{node.name}_of_groups", node.op, (parts.name,), type_, found, dims=(2,), keepdim=False)
    last = replace(node, inputs=(first.name,), call=of_row)
    return graph.with_nodes_for(node.name, (parts, first, last))


def group_norm_to_moments(graph: OpGraph) -> OpGraph:
    """Group norm as moments of each group, a normalisation, and scale and shift for each channel."""
    for node in graph.nodes:
        if node.op == "group_norm" and not any(node.type.multiples[1:]):
            graph = _split_groups(graph, node, dict(zip(node["roles"], node.inputs)))
    return graph


def _split_groups(graph: OpGraph, node: Node, roles: Mapping[str, str], by_image: bool = False) -> OpGraph:
    """Group norm with its moments; with ``by_image``, by way of those of each channel."""
    shape, groups = node.type.shape, node["groups"]
    split = Tensor((shape[0], groups, math.prod(shape[1:]) // groups), node.type.dtype, (node.type.multiples[0], 0, 0))
    each = Tensor((shape[0], groups, 1), multiples=split.multiples)
    x = _view(graph, f"{node.name}_groups", roles["input"], split)
    if by_image:
        of_images = _of_images(graph, node, roles["input"])
        channels = Tensor((shape[0], groups, shape[1] // groups), multiples=split.multiples)
        views = [_view(graph, f"{n.name}_of_groups", n.name, channels) for n in of_images]
        parts, over = (*(v.name for v in views), each), {"dims": (2,), "keepdim": True}
        mean = _node(
            graph,
            f"{node.name}_mean_of_group",
            "moments_mean",
            parts[:1],
            each,
            torch_("mean", X, (2,), keepdim=True),
            **over,
        )
        moments = [*of_images, *views, mean, *_of_parts(graph, f"{node.name}_variance_of_group", *parts, **over)]
    else:
        mean, *_ = moments = _moments(graph, node, x.name, each, (2,), True)
    scale = _inverse_deviation(graph, node, moments[-1])
    if len(shape) == 2:
        scale = replace(scale, op="inverse_deviation_of_columns")
    found = [
        x,
        *moments,
        scale,
        replace(_applied(node, x.name, [mean.name, scale.name]), name=graph.fresh(f"{node.name}_normal"), type=split),
    ]
    found.append(_view(graph, f"{node.name}_whole", found[-1].name, node.type))
    wide = Tensor((shape[1],) + (1,) * (len(shape) - 2))
    operands = []
    for role in ("weight", "bias"):
        if role in roles:
            operands.append(
                _view(graph, f"{node.name}_{role}", roles[role], replace(wide, dtype=graph.type(roles[role]).dtype))
            )
    if operands:
        found += [*operands, _affine(node, found[-1], [o.name for o in operands])]
    else:
        found[-1] = replace(found[-1], name=node.name)
    return graph.with_nodes_for(node.name, found)


def images_in_order(graph: OpGraph) -> OpGraph:
    """Layer norms and windows along a dimension that lies across memory: of a copy in order.

    A transpose makes such a copy along memory at both ends.
    """
    for node in graph.nodes:
        window = node.op in OPS and OPS[node.op].kind is Kind.WINDOW
        view = graph.producer(node.inputs[0]) if window or node.op == "layer_norm" else None
        if view is None or view.op != "permute" or view["dims"][-1] == len(view["dims"]) - 1:
            continue
        shape, dim = graph.type(view.inputs[0]).shape, view["dims"][-1]
        if min(math.prod(shape[1 : dim + 1]), math.prod(shape[dim + 1 :])) >= LEAST_EXTENT:
            copy = in_order(graph.fresh(f"{node.name}_in_order"), view, IN_TILES)
            graph = graph.with_nodes_for(node.name, [copy, replace(node, inputs=(copy.name, *node.inputs[1:]))])
    return graph


def split_norms(graph: OpGraph) -> OpGraph:
    """Layer norm and softmax as their reductions and what applies them: of few long rows, and where one element of each
    is used."""
    for node in graph.nodes:
        picks = _picks(graph, node)
        if node.op not in ("layer_norm", "softmax", "log_softmax") or not (_few_long_rows(node) or picks):
            continue
        if node.op == "layer_norm":
            graph = _split_layer_norm(graph, node)
        else:
            graph = _split_softmax(graph, node)
        for pick in picks:
            x, *reduced = graph.node(node.name).inputs
            first = replace(pick, name=graph.fresh(f"{pick.name}_first"), inputs=(x, pick.inputs[1]))
            last = replace(graph.node(node.name), name=pick.name, inputs=(first.name, *reduced), type=pick.type)
            graph = graph.with_nodes_for(pick.name, (first, last))
    return graph


def _few_long_rows(node: Node) -> bool:
    """Whether one block for each row would leave most of a chip idle."""
    long = math.prod(node.type.shape[d] for d in node["dims"])
    return long >= LONG_ROW and node.type.numel // long <= FEW_ROWS


def _picks(graph: OpGraph, node: Node) -> tuple[Node, ...]:
    """The gathers of a softmax, if nothing else reads it and each takes one element of a row: a loss does so."""
    users = graph.users(node.name) if node.op in ("softmax", "log_softmax") and node.name not in graph.returns else ()
    alone = all(
        u.op == "gather" and (u["dim"],) == node["dims"] and u.type.shape == _reduced(node).shape for u in users
    )
    return users if alone else ()


def _reduced(node: Node) -> Tensor:
    """The type of a reduction of the node's operand, which keeps its dimensions."""
    pairs = [
        (1, 0) if d in node["dims"] else (s, m) for d, (s, m) in enumerate(zip(node.type.shape, node.type.multiples))
    ]
    return Tensor(tuple(s for s, _ in pairs), multiples=tuple(m for _, m in pairs))


def _split_layer_norm(graph: OpGraph, node: Node) -> OpGraph:
    x, *affine = node.inputs
    mean, variance = _moments(graph, node, x, _reduced(node), node["dims"], True)
    scale = _inverse_deviation(graph, node, variance)
    normal = _applied(node, x, [mean.name, scale.name])
    if not affine:
        return graph.with_nodes_for(node.name, (mean, variance, scale, normal))
    normal = replace(normal, name=graph.fresh(f"{node.name}_normal"))
    return graph.with_nodes_for(node.name, (mean, variance, scale, normal, _affine(node, normal, affine)))


def _split_softmax(graph: OpGraph, node: Node) -> OpGraph:
    (x,) = node.inputs
    both = {"dims": node["dims"], "keepdim": True}
    maximum = torch_("amax", X, node["dims"], keepdim=True)
    largest = _node(
        graph, f"{node.name}_max", "softmax_max", (x,), _reduced(node), widened(maximum, graph.type(x).dtype), **both
    )
    sums = torch_("sum", torch_("exp", X - maximum), node["dims"], keepdim=True)
    total = _node(
        graph, f"{node.name}_sum", "softmax_sum", (x,), _reduced(node), widened(sums, graph.type(x).dtype), **both
    )
    calls = {"softmax": torch_("exp", X - Y) / Z, "log_softmax": X - Y - torch_("log", Z)}
    apply = replace(
        node,
        op=f"apply_{node.op}",
        inputs=(x, largest.name, total.name),
        call=rounded(calls[node.op], node.type.dtype),
        attrs=(),
    )
    return graph.with_nodes_for(node.name, (largest, total, apply))
