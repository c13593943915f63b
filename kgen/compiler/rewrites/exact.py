"""Convolutions of few channels in float32, where a batch norm keeps statistics of them.

    batch_norm(conv2d(x, w))  of 3 channels      a window whose products threads add up, then the same norm

PyTorch multiplies most convolutions in TF32, and those of few channels in float32. Running statistics behind the latter
err by their last rounding alone. Tensor cores truncate, and a mean over all pixels keeps that: it would be refused.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.compiler.graph.convolutions import Convolution, convolution
from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.operators.facts import is_convolution
from kgen.compiler.operators.windows import MOST_WEIGHTS

_MOST_CHANNELS = 8  #: of an image that threads multiply; the tensor cores' rate is worth more behind more of them


def few_channels_by_threads(graph: OpGraph) -> OpGraph:
    """Convolutions of few channels as windows, behind which running statistics are exact to float32: no convolution in
    TF32 stands in front of them, and others of the graph are in TF32."""
    if not any(node.tf32 for node in graph.nodes):
        return graph
    coarse: set[str] = set()  # values behind a convolution in TF32
    for node in graph.nodes:
        if node.tf32 or not coarse.isdisjoint(node.values):
            coarse.add(node.name)
        elif is_convolution(node) and any(_keeps_statistics(user) for user in graph.users(node.name)):
            window = convolution(graph, node)
            if window is not None and _is_small(graph, node, window):
                graph = graph.with_node(_by_threads(node, window))
    return graph


def _keeps_statistics(node: Node) -> bool:
    return node.op == "batch_norm" and node.effect


def _is_small(graph: OpGraph, node: Node, window: Convolution) -> bool:
    few = window.channels_in <= _MOST_CHANNELS and window.channels_in * window.taps <= MOST_WEIGHTS
    return few and not window.transposed and not is_narrow(node.type.dtype) and not any(node.type.multiples[1:])


def _by_threads(node: Node, window: Convolution) -> Node:
    """The convolution as a window of the table."""
    attrs = {
        "taps": tuple(line.kernel for line in window.lines),
        "stride": node["stride"],
        "padding": node["padding"],
        "dilation": node["dilation"],
        "groups": window.groups,
        "channels": window.channels_in,
    }
    return replace(node, op=f"depthwise_conv{len(window.lines)}d", attrs=tuple(attrs.items()))
