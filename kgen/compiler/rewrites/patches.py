"""Convolutions whose windows lie side by side, as over the patches of a vision transformer.

conv2d(x, w, stride=16)                                                 of windows of 16 x 16
linear(patches of x as rows, w as a matrix), its rows as an image       the same sums

A window may be the whole image: one pixel, as where a block weighs its channels by their means.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.compiler.graph.convolutions import Convolution, convolution
from kgen.compiler.graph.graph import FoldedWeight, Node, OpGraph, Tensor
from kgen.compiler.graph.library_call import Value, X, functional
from kgen.compiler.rewrites.view_nodes import in_order, permuted, reshaped

#: Elements of a window. A convolution of fewer takes its images in tiles.
LEAST_TAPS = 64


def patches_as_rows(graph: OpGraph) -> OpGraph:
    """Convolutions of large windows side by side as linear layers: each window is a row."""
    for node in list(graph.nodes):
        window = convolution(graph, node)
        if window is not None and _lie_side_by_side(graph, node, window):
            graph = _of_rows(graph, node, window)
    return graph


def _lie_side_by_side(graph: OpGraph, node: Node, window: Convolution) -> bool:
    """Whether each element of the images is in one window. Only a batch of images has rows of its own."""
    if window.transposed or window.groups > 1 or node.type is None:
        return False
    whole = all(
        line.kernel == line.size and line.out == line.dilation == 1 and not line.padding for line in window.lines
    )
    alone = window.taps >= LEAST_TAPS and all(
        line.kernel == line.stride and line.size == line.out * line.kernel and not line.padding and line.dilation == 1
        for line in window.lines
    )
    spatial = graph.type(node.inputs[0]).multiples[1:]
    return (whole or alone) and not any(spatial) and all(graph.is_weight(name) for name in node.values[1:])


def _of_rows(graph: OpGraph, node: Node, window: Convolution) -> OpGraph:
    """The graph with a linear layer in the place of a convolution; an image that is one window is a row as it lies."""
    x, images, rank = node.values[0], graph.type(node.values[0]), len(window.lines)
    pixels, features = window.pixels_out, window.channels_in * window.taps
    batch, follows = images.shape[0], images.multiples[0]

    def typed(*sizes: int) -> Tensor:
        return Tensor((batch, *sizes), images.dtype, (follows, *[0] * len(sizes)))

    row = graph.fresh(f"{node.name}_rows")
    if pixels == 1:
        rows = reshaped(row, x, typed(features))
        folded, linear = _linear(graph, node, rows, typed(window.channels_out))
        nodes = [rows, linear, reshaped(node.name, linear.name, node.type)]
        return graph.with_folded(folded).with_nodes_for(node.name, nodes)
    places = [size for line in window.lines for size in (line.out, line.kernel)]
    apart = reshaped(graph.fresh(f"{node.name}_windows"), x, typed(window.channels_in, *places))
    order = (0, *range(2, 2 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2))
    patches = permuted(graph.fresh(f"{node.name}_patches"), apart.name, apart.type, order)
    stored = in_order(graph.fresh(f"{node.name}_in_order"), patches)
    rows = reshaped(row, stored.name, typed(pixels, features))
    folded, linear = _linear(graph, node, rows, typed(pixels, window.channels_out))
    back = permuted(graph.fresh(f"{node.name}_channels"), linear.name, linear.type, (0, 2, 1))
    nodes = [apart, patches, stored, rows, linear, back, reshaped(node.name, back.name, node.type)]
    return graph.with_folded(folded).with_nodes_for(node.name, nodes)


def _linear(graph: OpGraph, node: Node, rows: Node, type_: Tensor) -> tuple[FoldedWeight, Node]:
    """The convolution's weight as a matrix, and the linear layer of rows by it."""
    _, weight, *bias = node.values
    shape = (type_.shape[-1], rows.type.shape[-1])
    matrix = graph.fresh(f"{node.name}_matrix")
    folded = FoldedWeight(matrix, Tensor(shape, graph.type(weight).dtype), X.method("flatten", 1), (weight,))
    inputs = (rows.name, matrix, *bias)
    linear = replace(
        node,
        name=graph.fresh(f"{node.name}_of_rows"),
        op="linear",
        inputs=inputs,
        type=type_,
        call=functional("linear", *map(Value, range(len(inputs)))),
        attrs=(),
        parts=None,
        tf32=False,
    )
    return folded, linear
