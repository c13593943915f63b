"""Images whose channels lie side by side, as layers around a window keep them.

    conv(add(x, y)).permute(0, 2, 3, 1)      of a depthwise convolution: the sum and its result are stored with channels
                                             last, which kernels in front and behind read as rows

Modules that apply norms or linear layers to channels permute images back and forth, as blocks of ConvNeXt do.
"""

from __future__ import annotations

from dataclasses import replace

from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.loops.transposes import LEAST_EXTENT
from kgen.compiler.rewrites.convolution import channels_first
from kgen.compiler.rewrites.view_nodes import in_order, permuted

_ORDER, _BACK = (0, 2, 3, 1), (0, 3, 1, 2)  #: of an image's dimensions: to channels last, and to channels first


def windows_channels_last(graph: OpGraph) -> OpGraph:
    """Depthwise convolutions that a permutation to channels last reads: they, and what they read, are stored so.

    So are the values that norms of channels read in such a graph.
    """
    stored = graph
    for node in [n for n in graph.nodes if n.op == "depthwise_conv2d" and _is_read_last(graph, n.name)]:
        if graph.producer(node.inputs[0]) is not None and node.type.shape[1] >= LEAST_EXTENT:
            stored = _stored_last(_stored_last(stored, str(node.inputs[0])), node.name)
    if stored is graph:
        return graph
    for node in [n for n in graph.nodes if n.op == "layer_norm"]:
        view = graph.producer(node.inputs[0])
        if view is not None and view.op == "permute" and view["dims"] == _ORDER:
            stored = _stored_last(stored, str(view.inputs[0]))
    return stored.pruned()


def _is_read_last(graph: OpGraph, name: str) -> bool:
    return any(user.op == "permute" and user["dims"] == _ORDER for user in graph.users(name))


def _stored_last(graph: OpGraph, name: str) -> OpGraph:
    """The graph in which a value is a view of a copy with channels last; as it is where that holds, or of an input.

    The kernel that computes the value makes the copy as it stores.
    """
    node = graph.producer(name)
    if node is None or node.type is None or node.effect or (node.op == "permute" and node["dims"] == _BACK):
        return graph
    values = replace(node, name=graph.fresh(f"{name}_values"))
    view = permuted(graph.fresh(f"{name}_last"), values.name, node.type, _ORDER)
    copy = in_order(graph.fresh(f"{name}_images"), view)
    graph = graph.with_nodes_for(name, [values, view, copy, *channels_first(graph, copy, node, _ORDER, _BACK)])
    return _without_views(graph, name, copy)


def _without_views(graph: OpGraph, name: str, copy: Node) -> OpGraph:
    """The graph whose permutations of the value to channels last are the copy itself."""
    for user in graph.users(name):
        if user.op == "permute" and user["dims"] == _ORDER and user.name not in graph.returns:
            graph = graph.without(user.name, copy.name)
    return graph
