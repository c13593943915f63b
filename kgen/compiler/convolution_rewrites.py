"""Rewrites of convolutions that what stands behind them makes small. All are exact in real arithmetic.

    mean_into_convolution     mean(conv(x)) over spatial dimensions becomes a product with sums of x under each tap
    average_into_convolution  avg_pool(conv(x)) becomes one convolution with a wider kernel and a larger stride
    affine_into_convolution   conv(x) * scale + shift for each channel, with both in its weight and bias

Factors may stand between, if they are the same at every position: they move behind the result.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Iterator, Sequence

from kgen.compiler.convolutions import Convolution, Line, convolution
from kgen.compiler.graph import FoldedWeight, Node, OpGraph, Tensor

_MEANS = ("mean", "mean_pool")
_AVERAGES = ("avg_pool1d", "avg_pool2d", "avg_pool3d")
_MOST_EDGES = 8  # elements at one edge that a tap leaves out; they are subtracted one by one


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
    """Whether a node's second operand is a number or a weight that is the same at every position, before ``last`` and behind it."""
    factor = node.inputs[1]
    if not isinstance(factor, str):
        return True
    kept = len(last.type.shape) == len(node.type.shape)
    return _by_channel(graph, factor, node.type) and (kept or graph.type(factor).shape in ((), (1,)))


def _in_place_of(graph: OpGraph, found: _Reduced, nodes: Sequence[Node], folded: FoldedWeight) -> OpGraph:
    """The graph with these nodes for the convolution and what reduces it; the factors follow the last of them."""
    nodes = list(nodes)
    for factor in found.factors:
        value = nodes[-1]
        nodes.append(replace(factor, name=graph.fresh(f"{factor.name}_reduced"), inputs=(value.name, *factor.inputs[1:]), type=value.type))
    nodes[-1] = replace(nodes[-1], name=found.last.name)
    return graph.with_folded(folded).with_nodes_for(found.last.name, nodes).pruned()


def _convolution_node(name: str, inputs: tuple[str, ...], type_: Tensor, lines: Sequence[Line], transposed: bool) -> Node:
    """A convolution of one group with these lines, as kgen's table has it."""
    each = {key: tuple(getattr(line, key) for line in lines) for key in ("stride", "padding", "dilation")}
    attrs = {**each, "groups": 1, "transposed": transposed}
    arguments = [*(f"{{{number}}}" for number in range(len(inputs))), *(f"{key}={value}" for key, value in each.items())]
    if transposed:
        more = tuple(line.out - ((line.size - 1) * line.stride - 2 * line.padding + line.dilation * (line.kernel - 1) + 1) for line in lines)
        arguments.append(f"output_padding={more}")
    op = f"conv{'_transpose' if transposed else ''}{len(lines)}d"
    return Node(name, op, inputs, type_, f"F.{op}({', '.join(arguments)})", tuple(attrs.items()))


def _as_called(line: Line) -> bool:
    """Whether a library call with the same padding on both sides gives as many outputs."""
    return (line.size + 2 * line.padding - line.dilation * (line.kernel - 1) - 1) // line.stride + 1 == line.out


# A mean over spatial dimensions


def mean_into_convolution(graph: OpGraph) -> OpGraph:
    """A mean over spatial dimensions as sums of the input under each tap, then a product or a convolution of what is left.

    The sum of all outputs takes each input that a tap meets once: all but a few at the edges.
    """
    for found in list(_reduced(graph, _MEANS)):
        lines, transposed = found.window.lines, found.window.transposed
        dims = [d - 2 for d in sorted(found.last["dims"], reverse=True)]
        rest = [line for d, line in enumerate(lines) if d not in dims]
        if min(dims) < 0 or not (transposed or all(map(_as_called, rest))):
            continue
        met = {d: _met(lines[d], transposed) for d in dims}
        if all(met.values()):
            graph = _mean(graph, found, met, rest)
    return graph


def _met(line: Line, transposed: bool) -> list[list[int]]:
    """The inputs that each tap of a dimension never meets; empty where they are too many."""
    missed = []
    for tap in range(line.kernel):
        at = tap * line.dilation - line.padding
        if transposed:
            met = {i for i in range(line.size) if 0 <= i * line.stride + at < line.out}
        else:
            met = {o * line.stride + at for o in range(line.out)}
        missed.append([i for i in range(line.size) if i not in met])
    return missed if max(map(len, missed)) <= _MOST_EDGES else []


def _mean(graph: OpGraph, found: _Reduced, missed: dict[int, list[list[int]]], rest: Sequence[Line]) -> OpGraph:
    """The graph with sums of x along each dimension, the taps as channels, and what is left of the convolution."""
    node, window = found.node, found.window
    x, weight, *bias = node.inputs
    kind, nodes = graph.type(x), []
    for d, edges in missed.items():
        at = 2 + d
        sizes, multiples = (list(values[:at]) + list(values[at + 1 :]) for values in (kind.shape, kind.multiples))
        total, taps = graph.fresh(f"{node.name}_sum_{d}"), graph.fresh(f"{node.name}_taps_{d}")
        attrs = (("dims", (at,)), ("keepdim", False))
        nodes.append(Node(total, "sum", (x,), Tensor(tuple(sizes), multiples=tuple(multiples)), f"torch.sum({{0}}, {at})", attrs))
        parts = ("{0}" + "".join(f" - {{1}}.select({at}, {i})" for i in of) for of in edges)
        sizes[1] *= len(edges)
        kind = Tensor(tuple(sizes), multiples=tuple(multiples))
        nodes.append(Node(taps, "aten.stack.default", (total, x), kind, f"torch.stack([{', '.join(parts)}], 2).flatten(1, 2)"))
        x = taps
    others = [2 + d for d in range(len(window.lines)) if d not in missed]
    channels, out = kind.shape[1], window.channels_out
    inner = [0 if window.transposed else 1, *(2 + d for d in missed)]  # the channels in, and the taps that became channels
    turned = window.transposed and bool(rest)
    order = [*inner, 1, *others] if turned else [1 if window.transposed else 0, *inner, *others]
    shape = ((channels, out) if turned else (out, channels)) + tuple(line.kernel for line in rest)
    divisor = math.prod(window.lines[d].out for d in missed)
    name = graph.fresh(f"{node.name}_weight")
    text = f"({{0}}.double().permute({', '.join(map(str, order))}).reshape({', '.join(map(str, shape))}) / {divisor}).float()"
    inputs = (x, name, *bias)
    type_ = Tensor((kind.shape[0], out, *(line.out for line in rest)), multiples=(kind.multiples[0], *[0] * (1 + len(rest))))
    product = graph.fresh(f"{node.name}_mean")
    if rest:
        nodes.append(_convolution_node(product, inputs, type_, rest, window.transposed))
    else:
        nodes.append(Node(product, "linear", inputs, type_, f"F.linear({', '.join(f'{{{i}}}' for i in range(len(inputs)))})"))
    if found.last["keepdim"]:
        index = ", ".join("None" if d in missed else ":" for d in range(len(window.lines)))
        nodes.append(Node(graph.fresh(f"{node.name}_kept"), "view", (product,), found.last.type, f"{{0}}[:, :, {index}]"))
    return _in_place_of(graph, found, nodes, FoldedWeight(name, Tensor(shape), text, (weight,)))


# Average pooling


def average_into_convolution(graph: OpGraph) -> OpGraph:
    """Average pooling of a convolution as a convolution with a wider kernel, whose stride is that of both together."""
    for found in list(_reduced(graph, _AVERAGES)):
        last, transposed = found.last, found.window.transposed
        if any(last["padding"]) or last["divisor"] is not None or set(last["dilation"]) != {1}:
            continue
        pooled = list(zip(found.window.lines, last["taps"], last["stride"], last.type.shape[2:]))
        wider = [(_wider_transposed if transposed else _wider)(*of) for of in pooled]
        if all(wider) and all(_as_called(line) for line, _ in wider):
            graph = _averaged(graph, found, wider)
    return graph


#: A line of the new convolution, and how often each of its elements takes each element of the old kernel.
_Wider = tuple[Line, list[list[int]]]


def _wider(line: Line, taps: int, stride: int, out: int) -> _Wider | None:
    """Output j of the pooling takes outputs ``j * stride + a`` for a below ``taps``."""
    if (out - 1) * stride + taps > line.out:
        return None
    kernel = (line.kernel - 1) * line.dilation + (taps - 1) * line.stride + 1
    met = [[sum(a * line.stride + k * line.dilation == at for a in range(taps)) for k in range(line.kernel)] for at in range(kernel)]
    return Line(line.size, out, kernel, stride * line.stride, line.padding, 1), met


def _wider_transposed(line: Line, taps: int, stride: int, out: int) -> _Wider | None:
    """Element k of the kernel takes input ``j * stride / line.stride + d`` to output ``k - padding + d * line.stride`` of window j."""
    if line.dilation != 1 or stride % line.stride or (out - 1) * stride + taps > line.out:
        return None
    least, most = -((line.kernel - 1 - line.padding) // line.stride), (taps - 1 + line.padding) // line.stride
    met = [[int(0 <= k - line.padding + d * line.stride < taps) for k in range(line.kernel)] for d in range(least, most + 1)]
    return (Line(line.size, out, len(met), stride // line.stride, -least, 1), met) if least <= 0 else None


def _averaged(graph: OpGraph, found: _Reduced, wider: Sequence[_Wider]) -> OpGraph:
    x, weight, *bias = found.node.inputs
    window = found.window
    old, new = "klm"[: len(wider)], "abc"[: len(wider)]
    pairs = ",".join(f"{n}{o}" for n, o in zip(new, old))
    matrices = ", ".join(f"{{0}}.new_tensor({met}).double()" for _, met in wider)
    channels = "io" if window.transposed else "oi"
    divisor = math.prod(found.last["taps"])
    text = f"(torch.einsum('{channels}{old},{pairs}->oi{new}', {{0}}.double(), {matrices}) / {divisor}).float()"
    name = graph.fresh(f"{found.node.name}_weight")
    lines = [line for line, _ in wider]
    folded = FoldedWeight(name, Tensor((window.channels_out, window.channels_in, *(line.kernel for line in lines))), text, (weight,))
    node = _convolution_node(graph.fresh(f"{found.node.name}_averaged"), (x, name, *bias), found.last.type, lines, False)
    return _in_place_of(graph, found, [node], folded)


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
        if not by_channel or not all(graph.is_weight(w) for w in (weight, *bias)) or (window.transposed and window.groups > 1):
            continue
        ones = ", 1" * len(window.lines)
        rows = f"{{1}}.double().reshape({'1, -1' if window.transposed else '-1, 1'}{ones})"
        new_weight, new_bias = graph.fresh(f"{inner.name}_weight"), graph.fresh(f"{inner.name}_bias")
        channels = outer.type.shape[1]
        spelled = "{0}.double().reshape(-1) * {1}.double().reshape(-1) + {2}.double().reshape(-1)"
        text, sources = (spelled, (bias[0], scale, shift)) if bias else ("{0}.double().reshape(-1)", (shift,))
        graph = graph.with_folded(
            FoldedWeight(new_weight, graph.type(weight), f"({{0}}.double() * {rows}).float()", (weight, scale)),
            FoldedWeight(new_bias, Tensor((channels,)), f"({text}).float().expand({channels}).contiguous()", sources),
        )
        call = inner.call if bias else re.sub(r"\(\{0\}, \{1\}(, None)?", "({0}, {1}, {2}", inner.call)
        graph = graph.with_node(replace(inner, inputs=(x, new_weight, new_bias), call=call)).without(outer.name, inner.name)
    return graph


def _by_channel(graph: OpGraph, operand: str | int | float, of: Tensor) -> bool:
    """Whether the operand is a weight with one element for all channels or one for each."""
    if not isinstance(operand, str) or not graph.is_weight(operand):
        return False
    shape = (1,) * (len(of.shape) - len(graph.type(operand).shape)) + graph.type(operand).shape
    return len(shape) == len(of.shape) and shape[1] in (1, of.shape[1]) and math.prod(shape) == shape[1]
