"""Windows: pooling, upsampling, and convolutions of each channel by itself, as values of neighbours of each output.

An output ``o`` of a window's dimension takes ``taps`` inputs: those at ``o * stride + tap * dilation - padding``.
Inputs outside of the tensor count as the identity of the reduction. The functions here read the attributes of calls,
and lower nodes by means of a program's builder.
"""

from __future__ import annotations

import math
from typing import Any, Sequence

import sympy

from kgen.compiler.graph.contractions import CONVOLVED
from kgen.compiler.graph.graph import Node
from kgen.compiler.loops.expr import SELF, exactly, x, y
from kgen.compiler.loops.program import Slide
from kgen.compiler.operators.op import Builder, Captured

#: Weights that a group of a convolution may have for each output: more are a contraction, not a window.
MOST_WEIGHTS = 256
BY_THREADS = "_by_threads"  #: behind the names of convolutions that rewrites make windows of
MOST_BESIDE = 32  # taps along a row; wider windows that lie side by side are reductions over blocks of their operand
MOST_CHANNELS = 4  # input channels of a group; more are worth a contraction


# Attributes of calls


def _each(value: Any, rank: int) -> tuple[int, ...]:
    """One number for each dimension."""
    return tuple(value) * (rank // len(value)) if isinstance(value, tuple) else (value,) * rank


def _rank(call: Captured) -> int:
    """Dimensions of the window, from the operator's name: ``aten.avg_pool2d.default``."""
    return int(call.target.split(".")[1].partition("d_")[0].rstrip("d")[-1])


def _fixed(call: Captured, rank: int) -> bool:
    """Whether the dimensions of the window keep their sizes at any batch."""
    return call.type is not None and not any(call.type.multiples[-rank:])


def pooled(call: Captured) -> dict[str, Any] | None:
    """The window of a pooling operator. ``counted`` says whether padding counts in a mean; ``divisor`` stands for the
    count."""
    rank, given = _rank(call), call.arguments
    kernel = _each(given["kernel_size"], rank)
    window = {
        "taps": kernel,
        "stride": _each(given.get("stride") or kernel, rank),
        "padding": _each(given["padding"], rank),
        "dilation": _each(given.get("dilation", 1), rank),
        "counted": bool(given.get("count_include_pad", False)),
        "divisor": given.get("divisor_override"),
    }
    return window if _fixed(call, rank) else None


def adaptive(call: Captured) -> dict[str, Any] | None:
    """The window of adaptive average pooling, where output sizes divide the input's."""
    rank = _rank(call)
    sizes, outputs = call.shape("self")[-rank:], call.type.shape[-rank:] if call.type else ()
    if not _fixed(call, rank) or any(not o or s % o for s, o in zip(sizes, outputs)):
        return None
    taps = tuple(s // o for s, o in zip(sizes, outputs))
    return {
        "taps": taps,
        "stride": taps,
        "padding": (0,) * rank,
        "dilation": (1,) * rank,
        "counted": False,
        "divisor": None,
    }


#: ATen's adaptive poolings, of which those with one output are means.
ADAPTIVE = "adaptive_avg_pool2d.default adaptive_avg_pool1d.default adaptive_avg_pool3d.default"


def is_mean(call: Captured) -> bool:
    """Whether an adaptive pooling has one output: the mean over all positions."""
    return call.type is not None and set(call.type.shape[-_rank(call) :]) == {1}


def over_all(call: Captured) -> dict[str, Any]:
    """The dimensions of an adaptive pooling with one output."""
    rank = len(call.shape("self"))
    return {"dims": tuple(range(rank - _rank(call), rank)), "keepdim": True}


def upsampled(call: Captured) -> dict[str, Any] | None:
    """The whole factors of nearest upsampling."""
    rank = _rank(call)
    sizes, outputs = call.shape("input")[-rank:], call.type.shape[-rank:] if call.type else ()
    scales = call.arguments.get("scale_factors")
    factors = tuple(o // s for s, o in zip(sizes, outputs))
    exact = all(f * s == o for f, s, o in zip(factors, sizes, outputs))
    return (
        {"factors": factors}
        if _fixed(call, rank) and exact and scales in (None, tuple(float(f) for f in factors))
        else None
    )


def convolved(call: Captured) -> dict[str, Any] | None:
    """The window of a convolution whose groups are so small that no contraction is worth it."""
    rank, given = _rank(call), call.arguments
    weight, groups = call.shape("weight"), given["groups"]
    if (
        groups == 1
        or weight[1] > MOST_CHANNELS
        or weight[1] * _product(weight[2:]) > MOST_WEIGHTS
        or not _fixed(call, rank + 1)
    ):
        return None
    padding, dilation = given["padding"], _each(given["dilation"], rank)
    if isinstance(padding, str):
        whole = [(taps - 1) * d if padding == "same" else 0 for taps, d in zip(weight[2:], dilation)]
        if any(p % 2 for p in whole):
            return None  # padding on one side alone
        padding = tuple(p // 2 for p in whole)
    return {"taps": weight[2:], "stride": _each(given["stride"], rank), "padding": _each(padding, rank),
            "dilation": dilation, "groups": groups, "channels": weight[1]}  # fmt: skip


def _product(sizes: Sequence[int]) -> int:
    found = 1
    for size in sizes:
        found *= size
    return found


# Lowerings: the name of the step that holds a node's value at an index


def _inner_axis(b: Builder, name: str, size: int) -> sympy.Symbol:
    """A position or a tap of a window, along which no result varies."""
    symbol = sympy.Symbol(name, integer=True, nonnegative=True)
    b.axes.extents[symbol] = size
    return symbol


def _window(b: Builder, node: Node, kind: str, fill: float, slides: Sequence[Slide], arg: str) -> str:
    """The reduction of a value over the taps and positions of a window."""
    inner = tuple(symbol for s in slides for symbol in (s.position, s.tap))
    varies = b.steps[b.floats(node, arg)].varies - set(inner) | frozenset().union(
        *(s.output.free_symbols for s in slides)
    )
    return b.step(f"{node.name}_window", "taps", kind, (arg,), varies, axes=inner, fill=fill, slides=tuple(slides))


def _image(b: Builder, node: Node, of: str, slides: Sequence[Slide]) -> str:
    """The value at the windows' positions; a step of its own where all positions have the same: it counts inside
    alone."""
    positions, varies = {s.position for s in slides}, b.steps[of].varies
    return (
        of
        if varies & positions
        else b.step(f"{node.name}_image", "map", "", (b.floats(node, of),), varies | positions, expr=SELF)
    )


def _slides(b: Builder, node: Node, index: Sequence[sympy.Expr], counted: bool = False) -> list[Slide]:
    """The window's dimensions for the output at the index."""
    taps, source = node["taps"], b.graph.type(node.inputs[0]).shape
    found = []
    for d in range(len(taps)):
        size, padding = source[d - len(taps)], node["padding"][d]
        inside = (-padding, size + padding) if counted else (0, size)
        found.append(
            Slide(
                _inner_axis(b, f"{node.name} position {d}", size),
                _inner_axis(b, f"{node.name} tap {d}", taps[d]),
                index[d - len(taps)],
                node.type.shape[d - len(taps)],
                size,
                taps[d],
                node["stride"][d],
                padding,
                node["dilation"][d],
                inside,
            )
        )
    return found


def _apart(b: Builder, node: Node, index: tuple[sympy.Expr, ...], kind: str) -> str | None:
    """The reduction of wide windows that lie side by side, as one over axes of their own; ``None`` for other
    windows."""
    taps, rank, sizes = node["taps"], len(node["taps"]), b.graph.type(node.inputs[0]).shape
    beside = node["stride"] == taps and not any(node["padding"]) and set(node["dilation"]) == {1}
    if (
        taps[-1] <= MOST_BESIDE
        or not beside
        or any(o * t > s for o, t, s in zip(node.type.shape[-rank:], taps, sizes[-rank:]))
    ):
        return None
    within = tuple(b.new_axis(f"{node.name}.{d}", t) for d, t in enumerate(taps))
    at = (*index[:-rank], *(i * t + w for i, t, w in zip(index[-rank:], taps, within)))
    return b.reduce(node.name, kind, (lambda _: b.value(node.inputs[0], at),), within, tuple(range(rank)))[0]


def _pool(
    b: Builder, node: Node, index: tuple[sympy.Expr, ...], slides: Sequence[Slide], kind: str, fill: float
) -> str:
    """The reduction of the operand over the window."""
    apart = _apart(b, node, index, kind)
    if apart:
        return apart
    of = b.value(node.inputs[0], (*index[: -len(slides)], *(s.position for s in slides)))
    return _window(b, node, kind, fill, slides, _image(b, node, of, slides))


def max_pool(b: Builder, node: Node, index: tuple[sympy.Expr, ...]) -> str:
    """The largest value of the window; NaN where there is one."""
    return _pool(b, node, index, _slides(b, node, index), "max", -math.inf)


def avg_pool(b: Builder, node: Node, index: tuple[sympy.Expr, ...]) -> str:
    """The sum of the window over a fixed divisor, or over the count of its positions where that differs."""
    slides = _slides(b, node, index, node["counted"])
    if node["divisor"] is None and not all(s.counts_all for s in slides):
        return _pool(b, node, index, slides, "mean", 0.0)
    divisor = exactly(str(float(node["divisor"] or _product(node["taps"]))))
    return b.map(node.name, x / divisor, [_pool(b, node, index, slides, "sum", 0.0)])


def depthwise(b: Builder, node: Node, index: tuple[sympy.Expr, ...]) -> str:
    """The sum of products of the window with the output channel's weights, and the bias."""
    slides = _slides(b, node, index)
    rank, channel = len(slides), index[-len(slides) - 1]
    own = b.axes.divide(channel, node.type.shape[-rank - 1] // node["groups"])
    within = b.axes.constant(0)
    if node["channels"] > 1:  # the channels of a group are a dimension of the window that does not move
        position = _inner_axis(b, f"{node.name} position channel", node["channels"])
        tap = _inner_axis(b, f"{node.name} tap channel", node["channels"])
        slides.insert(0, Slide(position, tap, b.axes.constant(0), 1, node["channels"], node["channels"], 0))
        own, within = own * node["channels"] + position, tap
    image = _image(
        b, node, b.value(node.inputs[0], (*index[: -rank - 1], own, *(s.position for s in slides[-rank:]))), slides
    )
    weight = b.value(node.inputs[1], (channel, within, *(s.tap for s in slides[-rank:])))
    total = _window(b, node, "sum", 0.0, slides, b.map(f"{node.name}_product", x * y, [image, weight]))
    return b.map(node.name, x + y, [total, b.value(node.inputs[2], (channel,))]) if len(node.inputs) > 2 else total


def upsample(b: Builder, node: Node, index: tuple[sympy.Expr, ...]) -> str:
    """The nearest element of the operand."""
    factors = node["factors"]
    behind = [b.axes.divide(i, factor) for i, factor in zip(index[-len(factors) :], factors)]
    return b.value(node.inputs[0], (*index[: -len(factors)], *behind))


#: The operators: name, ATen operators, operands, how they are lowered, how their attributes are read, and their sums.
#: Convolutions and poolings that are refused here have other entries.
TABLE = tuple(
    entry
    for d in (1, 2, 3)  # dimensions that windows move along
    for entry in (
        (f"max_pool{d}d", (f"aten.max_pool{d}d.default",), ("self",), max_pool, pooled, None),
        (f"avg_pool{d}d", (f"aten.avg_pool{d}d.default",), ("self",), avg_pool, pooled, None),
        (f"adaptive_avg_pool{d}d", (f"aten.adaptive_avg_pool{d}d.default",), ("self",), avg_pool, adaptive, None),
        (f"upsample_nearest{d}d", (f"aten.upsample_nearest{d}d.vec",), ("input",), upsample, upsampled, None),
        (
            f"depthwise_conv{d}d",
            (f"aten.conv{d}d.default", f"aten.conv{d}d.padding"),
            ("input", "weight", "bias"),
            depthwise,
            convolved,
            CONVOLVED,
        ),
    )
)
