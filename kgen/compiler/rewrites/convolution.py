"""Rewrites of convolutions that what stands behind them makes small. All are exact in real arithmetic.

    mean_into_convolution     mean(conv(x)) over spatial dimensions becomes a product with sums of x under each tap
    average_into_convolution  avg_pool(conv(x)) becomes a convolution with a larger stride, of averages of x
    affine_into_convolution   conv(x) * scale + shift for each channel, with both in its weight and bias
    extreme_into_pool         a maximum or minimum over some spatial dimensions becomes max pooling, which an epilogue
                              takes

Factors may stand between, if they are the same at every position: they move behind the result. Inputs are added up
rather than weights, so that infinities meet as they do in PyTorch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Iterator, Sequence

from kgen.compiler.graph.convolutions import Convolution, Line, convolution
from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.graph.graph import FoldedWeight, Node, OpGraph, Tensor
from kgen.compiler.graph.library_call import (
    Code,
    LibraryCall,
    Many,
    Span,
    Value,
    X,
    Y,
    Z,
    dtype_named,
    functional,
    operands,
    torch_,
    with_operands,
)
from kgen.compiler.loops.transposes import IN_TILES, LEAST_EXTENT
from kgen.compiler.operators.library import CHANNELS_LAST
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS
from kgen.compiler.rewrites.linear import SUMMED_WEIGHTS, weights_to_sum
from kgen.compiler.rewrites.view_nodes import in_order

_MEANS = ("mean", "mean_pool")
_AVERAGES = ("avg_pool1d", "avg_pool2d", "avg_pool3d")
_MOST_EDGES = 16  # elements at both edges that some tap leaves out; they are added one by one


@dataclass(frozen=True)
class _Reduced:
    """A convolution that only ``last`` reads, through ``factors``: products and quotients with numbers and weights."""

    node: Node
    window: Convolution
    factors: tuple[Node, ...]
    last: Node


def _reduced(graph: OpGraph, ops: Sequence[str]) -> Iterator[_Reduced]:
    """Every convolution of one group by a weight behind which one of the operators stands."""
    for last in graph.nodes:
        factors: list[Node] = []
        user = last
        while last.op in ops and isinstance(user.inputs[0], str):
            name = user.inputs[0]
            inner = graph.producer(name)
            if inner is None or not graph.feeds_only(name, user):
                break
            window = convolution(graph, inner)
            if window is not None:
                if window.groups == 1 and all(graph.is_weight(w) for w in inner.inputs[1:]):
                    yield _Reduced(inner, window, tuple(reversed(factors)), last)
                break
            if inner.op not in ("mul", "div") or not _is_factor(graph, inner, last):
                break
            factors.append(inner)
            user = inner


def _is_factor(graph: OpGraph, node: Node, last: Node) -> bool:
    """Whether a node's second operand is a number or a weight that is the same at every position, before ``last`` and
    behind it."""
    factor = node.inputs[1]
    if not isinstance(factor, str):
        return True
    kept = len(last.type.shape) == len(node.type.shape)
    return _by_channel(graph, factor, node.type) and (kept or graph.type(factor).shape in ((), (1,)))


def _in_place_of(graph: OpGraph, found: _Reduced, nodes: Sequence[Node], *folded: FoldedWeight) -> OpGraph:
    """The graph with these nodes for the convolution and what reduces it; the factors follow the last of them."""
    nodes = list(nodes)
    for factor in found.factors:
        value = nodes[-1]
        nodes.append(
            replace(
                factor,
                name=graph.fresh(f"{factor.name}_reduced"),
                inputs=(value.name, *factor.inputs[1:]),
                type=value.type,
            )
        )
    nodes[-1] = replace(nodes[-1], name=found.last.name)
    return graph.with_folded(*folded).with_nodes_for(found.last.name, nodes).pruned()


def _convolution_node(
    of: Node, name: str, inputs: tuple[str, ...], type_: Tensor, lines: Sequence[Line], transposed: bool
) -> Node:
    """A convolution of one group with these lines in the place of another, as kgen's table has it."""
    each = {key: tuple(getattr(line, key) for line in lines) for key in ("stride", "padding", "dilation")}
    attrs = {**each, "groups": 1, "transposed": transposed}
    named = dict(each)
    if transposed:
        named["output_padding"] = tuple(
            line.out - ((line.size - 1) * line.stride - 2 * line.padding + line.dilation * (line.kernel - 1) + 1)
            for line in lines
        )
    op = f"conv{'_transpose' if transposed else ''}{len(lines)}d"
    return Node(
        name,
        op,
        inputs,
        type_,
        functional(op, *map(Value, range(len(inputs))), **named),
        tuple(attrs.items()),
        tf32=of.tf32,
        products=of.products,
    )


def _as_called(line: Line) -> bool:
    """Whether a library call with the same padding on both sides gives as many outputs."""
    return (line.size + 2 * line.padding - line.dilation * (line.kernel - 1) - 1) // line.stride + 1 == line.out


# A mean over spatial dimensions


def mean_into_convolution(graph: OpGraph) -> OpGraph:
    """A mean over spatial dimensions as sums of the input under each tap, then a product or a convolution of what is
    left.

    The sum of all outputs takes each input that a tap meets once: all between the edges, and some at them.
    """
    for found in list(_reduced(graph, _MEANS)):
        lines, transposed = found.window.lines, found.window.transposed
        dims = [d - 2 for d in sorted(found.last["dims"], reverse=True)]
        rest = [line for d, line in enumerate(lines) if d not in dims]
        if min(dims) < 0 or not (transposed or all(map(_as_called, rest))):
            continue
        met = {d: _met(lines[d], transposed) for d in dims}
        if all(map(_between, met.values())) and all(lines[d].size - len(_between(met[d])) <= _MOST_EDGES for d in dims):
            graph = _mean(graph, found, met, rest)
    return graph


def _met(line: Line, transposed: bool) -> list[set[int]]:
    """The inputs that each tap of a dimension meets."""
    starts = [tap * line.dilation - line.padding for tap in range(line.kernel)]
    if transposed:
        return [{i for i in range(line.size) if 0 <= i * line.stride + at < line.out} for at in starts]
    return [{o * line.stride + at for o in range(line.out)} & set(range(line.size)) for at in starts]


def _between(met: Sequence[set[int]]) -> range:
    """The inputs that every tap meets, if they are neighbours; else none."""
    inner = set.intersection(*met)
    found = range(min(inner), max(inner) + 1) if inner else range(0)
    return found if len(found) == len(inner) else range(0)


def _as_channels(
    graph: OpGraph, stem: str, parts: Sequence[str], type_: Tensor, nodes: list[Node]
) -> tuple[str, Tensor]:
    """Values of one type as further channels, those of one channel beside each other, as one value with its type."""
    stacked, name = graph.fresh(stem.format("stacked")), graph.fresh(stem.format("taps"))
    (rows, channels, *rest), multiples = type_.shape, type_.multiples
    inner = Tensor((rows, channels, len(parts), *rest), multiples=(*multiples[:2], 0, *multiples[2:]))
    call = torch_("stack", Many(tuple(Value(parts.index(part)) for part in parts)), 2)
    nodes.append(Node(stacked, "cat", tuple(parts), inner, call, (("dim", 2),)))
    found = Tensor((rows, channels * len(parts), *rest), multiples=multiples)
    nodes.append(Node(name, "view", (stacked,), found, torch_("flatten", X, 1, 2)))
    return name, found


def _mean(graph: OpGraph, found: _Reduced, met: dict[int, list[set[int]]], rest: Sequence[Line]) -> OpGraph:
    """The graph with sums of x along each dimension, the taps as channels, and what is left of the convolution."""
    node, window = found.node, found.window
    x, weight, *bias = node.inputs
    kind, nodes = graph.type(x), []
    for d, taps in met.items():
        at, inner = 2 + d, _between(taps)
        edges = [i for i in range(window.lines[d].size) if i not in inner]
        sizes, multiples = list(kind.shape), kind.multiples
        whole = x
        if edges:
            sizes[at] = len(inner)
            cut = X[(*(Span() for _ in range(at)), Span(inner.start, inner.stop))]
            attrs = (("dim", at), ("start", inner.start), ("step", 1))
            nodes.append(
                Node(
                    graph.fresh(f"{node.name}_inner_{d}"),
                    "slice",
                    (x,),
                    Tensor(tuple(sizes), multiples=multiples),
                    cut,
                    attrs,
                )
            )
            whole = nodes[-1].name
        del sizes[at]
        multiples = (*multiples[:at], *multiples[at + 1 :])
        total, summed = graph.fresh(f"{node.name}_sum_{d}"), Tensor(tuple(sizes), multiples=multiples)
        attrs = (("dims", (at,)), ("keepdim", False))
        nodes.append(Node(total, "sum", (whole,), summed, torch_("sum", X, at), attrs))
        ends = {i: graph.fresh(f"{node.name}_end_{d}_{i}") for i in edges if any(i in of for of in taps)}
        nodes += [
            Node(end, "select", (x,), summed, X.method("select", at, i), (("dim", at), ("at", i)))
            for i, end in ends.items()
        ]
        parts = []
        for tap, of in enumerate(taps):
            parts.append(total)
            for i in sorted(ends.keys() & of):
                name = graph.fresh(f"{node.name}_tap_{d}_{tap}_{i}")
                nodes.append(Node(name, "add", (parts[-1], ends[i]), summed, torch_("add", X, Y), (("alpha", 1),)))
                parts[-1] = name
        x, kind = _as_channels(graph, f"{node.name}_{{}}_{d}", parts, summed, nodes)
    others = [2 + d for d in range(len(window.lines)) if d not in met]
    channels, out = kind.shape[1], window.channels_out
    inner = [0 if window.transposed else 1, *(2 + d for d in met)]  # the channels in, and the taps that became channels
    turned = window.transposed and bool(rest)
    order = [*inner, 1, *others] if turned else [1 if window.transposed else 0, *inner, *others]
    shape = ((channels, out) if turned else (out, channels)) + tuple(line.kernel for line in rest)
    divisor = math.prod(window.lines[d].out for d in met)
    name = graph.fresh(f"{node.name}_weight")
    averages = X.method("double").method("permute", *order).method("reshape", *shape) / divisor
    inputs = (x, name, *bias)
    type_ = Tensor(
        (kind.shape[0], out, *(line.out for line in rest)), multiples=(kind.multiples[0], *[0] * (1 + len(rest)))
    )
    product = graph.fresh(f"{node.name}_mean")
    if rest:
        nodes.append(_convolution_node(node, product, inputs, type_, rest, window.transposed))
    else:
        nodes.append(Node(product, "linear", inputs, type_, functional("linear", *map(Value, range(len(inputs))))))
    if found.last["keepdim"]:
        index = (Span(), Span(), *(None if d in met else Span() for d in range(len(window.lines))))
        nodes.append(Node(graph.fresh(f"{node.name}_kept"), "view", (product,), found.last.type, X[index]))
    return _in_place_of(graph, found, nodes, FoldedWeight(name, Tensor(shape), averages.method("float"), (weight,)))


# Average pooling


def average_into_convolution(graph: OpGraph) -> OpGraph:
    """Average pooling of a convolution as a convolution of averages, whose stride is that of both together."""
    for found in list(_reduced(graph, _AVERAGES)):
        last = found.last
        if any(last["padding"]) or last["divisor"] is not None or set(last["dilation"]) != {1}:
            continue
        graph = (_averaged_transposed if found.window.transposed else _averaged)(graph, found)
    return graph


def _averaged(graph: OpGraph, found: _Reduced) -> OpGraph:
    """The same graph where the library has no such averages: with more padding, or with inputs between them."""
    node, lines, taps = found.node, found.window.lines, found.last["taps"]
    padding = tuple(line.padding for line in lines)
    sizes = [line.size + 2 * line.padding - t + 1 for line, t in zip(lines, taps)]
    pooled = [
        Line(size, out, line.kernel, stride, 0, line.dilation)
        for size, out, line, stride in zip(sizes, found.last.type.shape[2:], lines, found.last["stride"])
    ]
    if any(line.stride > 1 or 2 * line.padding > t for line, t in zip(lines, taps)) or not all(
        map(_as_called, (*lines, *pooled))
    ):
        return graph
    x, rest, ones = graph.type(node.inputs[0]), node.inputs[1:], (1,) * len(taps)
    attrs = {"taps": taps, "stride": ones, "padding": padding, "dilation": ones, "counted": True, "divisor": None}
    averages = Node(
        graph.fresh(f"{node.name}_averages"),
        found.last.op,
        node.inputs[:1],
        Tensor((*x.shape[:2], *sizes), multiples=x.multiples),
        functional(found.last.op, X, taps, 1, padding),
        tuple(attrs.items()),
    )
    convolved = _convolution_node(
        node, graph.fresh(f"{node.name}_averaged"), (averages.name, *rest), found.last.type, pooled, False
    )
    return _in_place_of(graph, found, [averages, convolved])


#: A line of the new convolution, and which elements of the old kernel each of its elements takes.
_Wider = tuple[Line, tuple[tuple[int, ...], ...]]


def _wider(line: Line, taps: int, stride: int, out: int) -> _Wider | None:
    """Element k of the kernel takes input ``j * stride / line.stride + d`` to output ``k - padding + d * line.stride``
    of window j."""
    if line.dilation != 1 or stride % line.stride or (out - 1) * stride + taps > line.out:
        return None
    least, most = -((line.kernel - 1 - line.padding) // line.stride), (taps - 1 + line.padding) // line.stride
    met = tuple(
        tuple(int(0 <= k - line.padding + d * line.stride < taps) for k in range(line.kernel))
        for d in range(least, most + 1)
    )
    new = Line(line.size, out, len(met), stride // line.stride, -least, 1)
    return (new, met) if least <= 0 and all(map(any, met)) and _as_called(new) else None


def _averaged_transposed(graph: OpGraph, found: _Reduced) -> OpGraph:
    """An input meets several elements of the kernel in one window, whose sum is kept as two weights, for x twice."""
    lines, last = found.window.lines, found.last
    wider = [_wider(*of) for of in zip(lines, last["taps"], last["stride"], last.type.shape[2:])]
    if not all(wider):
        return graph
    x, weight, *bias = found.node.inputs
    window, kind = found.window, graph.type(x)
    old, new = "klm"[: len(wider)], "abc"[: len(wider)]
    pairs = ",".join(f"{n}{o}" for n, o in zip(new, old))
    matrices = [X.method("new_tensor", Many(tuple(map(Many, met)))).method("double") for _, met in wider]
    total = torch_("einsum", f"sio{old},{pairs}->soi{new}", weights_to_sum(X.method("double")), *matrices) / math.prod(
        last["taps"]
    )
    shape = (window.channels_out, window.channels_in, *(line.kernel for line, _ in wider))
    sums = FoldedWeight(graph.fresh(f"{found.node.name}_sums"), Tensor((3, *shape)), total.method("float"), (weight,))
    name = graph.fresh(f"{found.node.name}_weight")
    both = FoldedWeight(
        name, Tensor((shape[0], 2 * shape[1], *shape[2:])), torch_("cat", SUMMED_WEIGHTS, 1), (sums.name,)
    )
    twice = Tensor((kind.shape[0], 2 * kind.shape[1], *kind.shape[2:]), multiples=kind.multiples)
    doubled = Node(
        graph.fresh(f"{found.node.name}_twice"), "cat", (x, x), twice, torch_("cat", (X, Y), 1), (("dim", 1),)
    )
    averaged = _convolution_node(
        found.node,
        graph.fresh(f"{found.node.name}_averaged"),
        (doubled.name, name, *bias),
        last.type,
        [line for line, _ in wider],
        False,
    )
    return _in_place_of(graph, found, [doubled, averaged], sums, both)


# Extremes


def extreme_into_pool(graph: OpGraph) -> OpGraph:
    """An extreme over some of the spatial dimensions as max pooling, behind a convolution and pointwise operators."""
    for last in graph.nodes:
        if last.op not in ("amax", "amin") or not _behind_convolution(graph, last):
            continue
        x, dims = last.inputs[0], last["dims"]
        kind = graph.type(x)
        spatial = len(kind.shape) - 2
        if min(dims) < 2 or len(dims) == spatial:
            continue
        taps = tuple(size if d in dims else 1 for d, size in enumerate(kind.shape))[2:]
        ones, zeros = (1,) * spatial, (0,) * spatial
        attrs = {"taps": taps, "stride": taps, "padding": zeros, "dilation": ones, "counted": False, "divisor": None}
        pooled = replace(kind, shape=tuple(1 if d in dims else size for d, size in enumerate(kind.shape)))
        nodes = [
            Node(
                graph.fresh(f"{last.name}_pool"),
                f"max_pool{spatial}d",
                (x,),
                pooled,
                functional(f"max_pool{spatial}d", X, taps),
                tuple(attrs.items()),
            )
        ]
        if last.op == "amin":
            negative = Node(graph.fresh(f"{last.name}_negative"), "neg", (x,), kind, torch_("neg", X))
            back = Node(graph.fresh(f"{last.name}_positive"), "neg", (nodes[0].name,), pooled, torch_("neg", X))
            nodes = [negative, replace(nodes[0], inputs=(negative.name,)), back]
        if not last["keepdim"]:
            index = tuple(0 if d in dims else Span() for d in range(len(kind.shape)))
            nodes.append(Node(graph.fresh(f"{last.name}_view"), "view", (nodes[-1].name,), last.type, X[index]))
        graph = graph.with_nodes_for(last.name, [*nodes[:-1], replace(nodes[-1], name=last.name)])
    return graph


def _behind_convolution(graph: OpGraph, node: Node) -> bool:
    """Whether the node reads a convolution, directly or through pointwise operators that nothing else reads."""
    inner = graph.producer(node.inputs[0])
    if inner is None or not graph.feeds_only(inner.name, node):
        return False
    pointwise = inner.op in OPS and OPS[inner.op].kind is Kind.POINTWISE
    return convolution(graph, inner) is not None or (
        pointwise and isinstance(inner.inputs[0], str) and _behind_convolution(graph, inner)
    )


# Layouts


def convolutions_channels_last(graph: OpGraph) -> OpGraph:
    """Convolutions of images whose channels lie side by side, as oneDNN computes them; a permutation gives their
    dimensions back.

    A result that forward returns is copied to the order of its dimensions where PyTorch returns it so.
    """
    for node in graph.nodes:
        spatial = len(node.type.shape) - 2 if node.type is not None else 0
        window = convolution(graph, node)
        if window is None or spatial not in _CHANNELS_LAST or 0 not in operands(node.call):
            continue
        if is_narrow(node.type.dtype) and window.channels_in % 8:
            # oneDNN fills channels up with zeros, in one layout or the other, and zero times an infinity is NaN.
            continue
        order, back = (0, *range(2, spatial + 2), 1), (0, spatial + 1, *range(1, spatial + 1))
        before, images, spelled = images_last(graph, node.inputs[0], node.name, order, back)
        call = with_operands(node.call, lambda value: spelled if value == X else value)
        moved = replace(
            node,
            name=graph.fresh(f"{node.name}_last"),
            op=f"{node.op}{CHANNELS_LAST}",
            inputs=(images, *node.inputs[1:]),
            type=node.type.permuted(order),
            call=call.method("permute", *order).method("contiguous"),
        )
        graph = graph.with_nodes_for(node.name, [*before, moved, *channels_first(graph, moved, node, order, back)])
    return graph


def channels_first(
    graph: OpGraph, moved: Node, node: Node, order: tuple[int, ...], back: tuple[int, ...]
) -> list[Node]:
    """The nodes that give the dimensions of a moved result back under the node's name; a copy where forward returns it
    so."""
    returned = node.name in graph.returns and graph.order(node.name) != order
    name = graph.fresh(f"{node.name}_first") if returned else node.name
    view = Node(name, "permute", (moved.name,), node.type, X.method("permute", *back), (("dims", back),))
    return [view, *([in_order(node.name, view)] if returned else [])]


def images_last(
    graph: OpGraph,
    x: str,
    stem: str,
    order: tuple[int, ...],
    back: tuple[int, ...],
    *,
    narrow: bool = False,
    in_tiles: bool = False,
) -> tuple[list[Node], str, LibraryCall]:
    """The nodes that move images, what they come to, and how a call reads it as its first operand.

    A transpose moves images of many channels, as they are or behind pointwise operators, and half types if it may be
    ``narrow``. The library moves others. ``stem`` begins the names of new nodes. ``in_tiles`` says that no other kernel
    than a transpose moves them.
    """
    inner, kind = graph.producer(x), graph.type(x)
    if inner is not None and inner.op == "permute" and inner["dims"] == back:
        return [], inner.inputs[0], X.method("permute", *back)
    if (is_narrow(kind.dtype) and not narrow) or min(kind.shape[1], math.prod(kind.shape[2:])) < LEAST_EXTENT:
        return [], x, X.method("contiguous", memory_format=_CHANNELS_LAST[len(back) - 2])
    views = (user for user in graph.users(x) if user.op == "permute" and user["dims"] == order)
    moved = next((copy for view in views for copy in graph.users(view.name) if copy.op == "copy"), None)
    if moved is not None:  # for an earlier call
        return [], moved.name, X.method("permute", *back)
    view = Node(
        graph.fresh(f"{stem}_permuted"),
        "permute",
        (x,),
        kind.permuted(order),
        X.method("permute", *order),
        (("dims", order),),
    )
    moved = in_order(graph.fresh(f"{stem}_images"), view, IN_TILES if in_tiles else ())
    return [view, moved], moved.name, X.method("permute", *back)


#: The memory format of images with so many spatial dimensions.
_CHANNELS_LAST = {2: Code("torch.channels_last"), 3: Code("torch.channels_last_3d")}


# Scales and shifts


def affine_into_convolution(graph: OpGraph) -> OpGraph:
    """``conv(x) * scale + shift`` for each channel, with both in the convolution's weight and bias."""
    for outer in graph.nodes:
        inner = graph.producer(outer.inputs[0]) if outer.op == "lerp_affine" else None
        window = convolution(graph, inner) if inner is not None else None
        if window is None or not graph.feeds_only(inner.name, outer):
            continue
        _, scale, shift = outer.inputs
        x, weight, *bias = inner.inputs
        by_channel = all(_by_channel(graph, o, outer.type) for o in (scale, shift))
        if (
            not by_channel
            or not all(graph.is_weight(w) for w in (weight, *bias))
            or (window.transposed and window.groups > 1)
        ):
            continue
        flat = [of.method("double").method("reshape", -1) for of in (X, Y, Z)]
        rows = Y.method("double").method(
            "reshape", *((1, -1) if window.transposed else (-1, 1)), *[1] * len(window.lines)
        )
        new_weight, new_bias = graph.fresh(f"{inner.name}_weight"), graph.fresh(f"{inner.name}_bias")
        channels, dtype = outer.type.shape[1], graph.type(weight).dtype
        total, sources = (flat[0] * flat[1] + flat[2], (bias[0], scale, shift)) if bias else (flat[0], (shift,))
        graph = graph.with_folded(
            FoldedWeight(new_weight, graph.type(weight), _in_dtype(X.method("double") * rows, dtype), (weight, scale)),
            FoldedWeight(
                new_bias,
                Tensor((channels,), dtype),
                _in_dtype(total, dtype).method("expand", channels).method("contiguous"),
                sources,
            ),
        )
        call = replace(inner.call, args=(X, Y, Z, *inner.call.args[3:]))
        graph = graph.with_node(replace(inner, inputs=(x, new_weight, new_bias), call=call)).without(
            outer.name, inner.name
        )
    return graph


def _in_dtype(call: LibraryCall, dtype: str) -> LibraryCall:
    return call.method("to", dtype_named(dtype)) if is_narrow(dtype) else call.method("float")


def _by_channel(graph: OpGraph, operand: str | int | float, of: Tensor) -> bool:
    """Whether the operand is a weight with one element for all channels or one for each."""
    if not isinstance(operand, str) or not graph.is_weight(operand):
        return False
    shape = (1,) * (len(of.shape) - len(graph.type(operand).shape)) + graph.type(operand).shape
    return len(shape) == len(of.shape) and shape[1] in (1, of.shape[1]) and math.prod(shape) == shape[1]
