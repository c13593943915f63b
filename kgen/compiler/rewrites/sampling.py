"""Samples of images with channels last: the channels of a pixel lie side by side, as one read.

    grid_sample(x, grid)     permute(grid_sample of permuted x, grid), both copies by transposes

Points lie anywhere in an image. With channels first, each channel of each neighbour moves a sector of its own.
"""

from __future__ import annotations

import math
from dataclasses import replace

from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.graph.library_call import X, Y, with_operands
from kgen.compiler.loops.transposes import IN_TILES, LEAST_EXTENT
from kgen.compiler.operators.sampling import CHANNELS_LAST
from kgen.compiler.rewrites.view_nodes import in_order, permuted

_LAST, _FIRST = (0, 2, 3, 1), (0, 3, 1, 2)  # the dimensions of images with channels last, and back


def sample_channels_last(graph: OpGraph) -> OpGraph:
    """Samples of images of many channels as those of copies with channels last."""
    for node in graph.nodes:
        if node.op != "grid_sample" or not _is_worth_it(graph, node):
            continue
        x, grid = node.values
        call = with_operands(node.call, lambda value: X.method("permute", *_FIRST) if value == X else Y)
        view = permuted(graph.fresh(f"{node.name}_of"), x, graph.type(x), _LAST)
        image = in_order(graph.fresh(f"{node.name}_image"), view, IN_TILES)
        sampled = replace(
            node,
            name=graph.fresh(f"{node.name}_last"),
            inputs=(image.name, grid),
            type=node.type.permuted(_LAST),
            call=call.method("permute", *_LAST),
            attrs=(*node.attrs, CHANNELS_LAST),
        )
        back = permuted(graph.fresh(f"{node.name}_first"), sampled.name, sampled.type, _FIRST)
        graph = graph.with_nodes_for(node.name, (view, image, sampled, back, in_order(node.name, back, IN_TILES)))
    return graph


def _is_worth_it(graph: OpGraph, node: Node) -> bool:
    """Whether the node samples images of many channels and pixels with channels first."""
    of = graph.type(node.values[0])
    enough = [of.shape[1], *(math.prod(t.shape[2:]) for t in (of, node.type))] if len(of.shape) == 4 else [0]
    return (
        len(node.values) == 2
        and of.dtype == "float32"
        and min(enough) >= LEAST_EXTENT
        and node.attrs[-1] != CHANNELS_LAST
    )
