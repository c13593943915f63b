"""Convolutions of few channels in float32: threads add up their products.

    conv2d(x, w)                     of 3 channels       a window, as those of depthwise convolutions are
    batch_norm(conv2d(x, w))         in train mode       the same, where PyTorch's running statistics are exact

PyTorch multiplies most convolutions in TF32, and those of few channels in float32. Tensor cores then take three
products, and threads may be as fast. Running statistics behind the latter err by their last rounding alone. Tensor
cores truncate, and a mean over all pixels keeps that: it would be refused.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.compiler.graph.convolutions import Convolution, convolution
from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.operators.windows import BY_THREADS, MOST_WEIGHTS

_MOST_CHANNELS = 8  #: of an image that threads multiply; the tensor cores' rate is worth more behind more of them


def exact_statistics(graph: OpGraph) -> OpGraph:
    """Convolutions of few channels by threads, where a batch norm keeps statistics of values that no TF32 has touched.

    Only graphs with convolutions in TF32 change: elsewhere all statistics are exact, and threads would compute most of
    the network.
    """
    if not any(node.tf32 for node in graph.nodes):
        return graph
    coarse: set[str] = set()  # values behind a convolution in TF32
    for node in graph.nodes:
        if node.tf32 or not coarse.isdisjoint(node.values):
            coarse.add(node.name)
        elif any(user.op == "batch_norm" and user.effect for user in graph.users(node.name)):
            graph = _by_threads(graph, node)
    return graph


def few_channels_by_threads(graph: OpGraph) -> OpGraph:
    """Convolutions of few channels by threads, where PyTorch multiplies them in float32."""
    for node in graph.nodes:
        if not node.tf32 and node.products > 1:
            graph = _by_threads(graph, node)
    return graph


def _by_threads(graph: OpGraph, node: Node) -> OpGraph:
    """The graph with a window in the place of a convolution; the same one where it is none of few channels."""
    window = convolution(graph, node)
    if window is None or not _is_small(node, window):
        return graph
    attrs = {
        "taps": tuple(line.kernel for line in window.lines),
        "stride": node["stride"],
        "padding": node["padding"],
        "dilation": node["dilation"],
        "groups": window.groups,
        "channels": window.channels_in,
    }
    op = f"conv{len(window.lines)}d{BY_THREADS}"
    return graph.with_node(replace(node, op=op, attrs=tuple(attrs.items())))


def _is_small(node: Node, window: Convolution) -> bool:
    few = window.channels_in <= _MOST_CHANNELS and window.channels_in * window.taps <= MOST_WEIGHTS
    return few and not window.transposed and not is_narrow(node.type.dtype) and not any(node.type.multiples[1:])
