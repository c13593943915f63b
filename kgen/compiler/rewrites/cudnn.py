"""Convolutions as cuDNN computes them fastest: images with channels last, and what stands behind a convolution in the
same call.

    relu(conv2d(x, w, b))            torch.cudnn_convolution_relu, of x and w with channels last
    relu(conv2d(x, w, b) + z)        torch.cudnn_convolution_add_relu, of z in the same order
    conv2d(x, w, b)                  the same convolution, with channels last

A permutation gives the dimensions back. Convolutions behind one another read images as they lie, so that nothing is
moved.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from kgen.compiler.graph.convolutions import convolution
from kgen.compiler.graph.graph import FoldedWeight, Node, OpGraph
from kgen.compiler.graph.library_call import LibraryCall, Value, X, Y, Z, functional, torch_, with_operands
from kgen.compiler.operators.library import ADD_RELU, CHANNELS_LAST, RELU
from kgen.compiler.rewrites.convolution import affine_into_convolution, channels_first, images_last
from kgen.compiler.rewrites.view_nodes import sliced

_ORDER, _BACK = (0, 2, 3, 1), (0, 3, 1, 2)  #: of an image's dimensions: to channels last, and to channels first

#: cuDNN fills fewer channels up with zeros. In bfloat16, 7 x 7 pixels of three took 0.53 ms, and our kernel 0.18 ms.
_LEAST_CHANNELS = 8
_MOST_TAPS = 16  #: of a pool; a thread has one value of each tap


@dataclass(frozen=True)
class _Group:
    """A convolution, the value that is added to it, and the last node of its call."""

    node: Node
    end: Node
    added: str = ""


def convolutions_in_cudnn(graph: OpGraph) -> OpGraph:
    """Convolutions of images whose channels lie side by side. The ReLU behind one, or the sum and the ReLU, is part of
    its call."""
    folded = affine_into_convolution(graph)  # of half types, too: a weight is rounded where PyTorch rounds a result
    groups = {group.end.name: group for group in _groups(folded)}
    if all(group.end is group.node for group in groups.values()):
        return graph  # no call takes more than PyTorch's own
    graph = folded
    for group in groups.values():
        graph = _with_one_bias(graph, group)
    groups = {group.end.name: group for group in _groups(graph)}
    for node in graph.nodes:
        if node.name in groups:
            graph = _moved(graph, groups[node.name])
        elif node.op == "max_pool2d":
            graph = _pooled(graph, node)
    return graph.pruned()


def _groups(graph: OpGraph) -> Iterator[_Group]:
    """Every convolution that cuDNN takes, with the operators of its call. An operator is in one group."""
    taken: set[str] = set()
    for node in graph.nodes:
        window = convolution(graph, node)
        if (
            window is None
            or len(window.lines) != 2
            or window.transposed
            or window.groups > 1
            or window.channels_in < _LEAST_CHANNELS
        ):
            continue
        if not all(map(graph.is_weight, node.inputs[1:])):
            continue
        group = _group(graph, node)
        if group.end.name in taken:  # the other operand of the sum has it
            group = _Group(node, node)
        taken.add(group.end.name)
        yield group


def _group(graph: OpGraph, node: Node) -> _Group:
    user = _only_user(graph, node)
    if user is not None and user.op == "relu":
        return _Group(node, user)
    if user is not None and user.op == "add" and user.type == node.type:
        last, added = _only_user(graph, user), [i for i in user.inputs if i != node.name]
        if (
            last is not None
            and last.op == "relu"
            and added
            and graph.known_type(added[0]) == node.type
            and not graph.is_weight(added[0])
        ):
            return _Group(node, last, added[0])
    return _Group(node, node)


def _only_user(graph: OpGraph, node: Node) -> Node | None:
    users = graph.users(node.name)
    return users[0] if len(users) == 1 and graph.feeds_only(node.name, users[0]) else None


def _with_one_bias(graph: OpGraph, group: _Group) -> OpGraph:
    """The graph with one bias for both operands of a group's sum. The library adds another one in a pass of its own."""
    node, other = group.node, graph.producer(group.added)
    if (
        other is None
        or convolution(graph, other) is None
        or len(graph.users(other.name)) > 1
        or other.name in graph.returns
    ):
        return graph
    biases = (*node.inputs[2:], *other.inputs[2:])
    if len(biases) < 2 or other.type.dtype != "float32" or not all(map(graph.is_weight, biases)):
        return graph
    both = FoldedWeight(graph.fresh(f"{node.name}_biases"), graph.type(biases[0]), X + Y, biases)
    alone = replace(
        other, inputs=other.inputs[:2], call=with_operands(other.call, lambda value: None if value == Z else value)
    )
    return graph.with_folded(both).with_node(replace(node, inputs=(*node.inputs[:2], both.name))).with_node(alone)


def _moved(graph: OpGraph, group: _Group) -> OpGraph:
    """The graph with the group's call in the place of its last node."""
    node, end, added = group.node, group.end, group.added
    before, images, spelled = images_last(graph, node.inputs[0], node.name, _ORDER, _BACK, narrow=True, in_tiles=True)
    graph = graph.with_nodes_for(end.name, [*before, end])
    graph, weight = _weight_last(graph, node.inputs[1])
    inputs, bias = [images, weight, *node.inputs[2:]], Value(2) if len(node.inputs) > 2 else None
    operands: list[LibraryCall | None | int] = [spelled, Y.method("permute", *_BACK)]
    fused = ""
    if end is not node:
        fused = ADD_RELU if added else RELU
    if added:
        before, other, also = images_last(graph, added, f"{node.name}_added", _ORDER, _BACK, narrow=True, in_tiles=True)
        graph = graph.with_nodes_for(end.name, [*before, end])
        operands += [with_operands(also, lambda _: Value(len(inputs))), 1]
        inputs.append(other)
    geometry = (node["stride"], node["padding"], node["dilation"], node["groups"])
    call = torch_(f"cudnn_convolution{fused}" if fused else "conv2d", *operands, bias, *geometry)
    type_ = node.type.permuted(_ORDER)
    fresh = graph.fresh(f"{node.name}_last")
    whole = replace(node, name=fresh, op=f"conv2d{fused}{CHANNELS_LAST}", inputs=tuple(inputs), type=type_,
                    call=call.method("permute", *_ORDER).method("contiguous"))  # fmt: skip
    return graph.with_nodes_for(end.name, [whole, *channels_first(graph, whole, end, _ORDER, _BACK)])


def _pooled(graph: OpGraph, node: Node) -> OpGraph:
    """Max pooling of images with channels last as a maximum of slices: a kernel of these runs along the channels."""
    images = graph.producer(node.inputs[0])
    if (
        images is None
        or images.op != "permute"
        or images["dims"] != _BACK
        or not 1 < math.prod(node["taps"]) <= _MOST_TAPS
    ):
        return graph
    x, result, nodes = images.inputs[0], node.type.permuted(_ORDER), []
    name, type_ = x, graph.type(x)
    windows = list(zip((1, 2), node["taps"], node["stride"], node["padding"], node["dilation"]))
    behind = [
        max(0, (result.shape[d] - 1) * stride + (taps - 1) * apart + 1 - type_.shape[d] - pad)
        for d, taps, stride, pad, apart in windows
    ]
    pairs = ((0, 0), *((pad, more) for (_, _, _, pad, _), more in zip(windows, behind)), (0, 0))
    if any(map(any, pairs)):
        name, type_ = (
            graph.fresh(f"{node.name}_padded"),
            replace(type_, shape=tuple(size + sum(pair) for size, pair in zip(type_.shape, pairs))),
        )
        flat = tuple(side for pair in reversed(pairs) for side in pair)
        nodes.append(
            Node(
                name,
                "pad",
                (x,),
                type_,
                functional("pad", X, flat, "constant", -math.inf),
                (("pad", pairs), ("value", -math.inf)),
            )
        )
    parts = [(name, type_)]
    for d, taps, stride, _, apart in windows:
        cut = []
        for (of, whole), tap in itertools.product(parts, range(taps)):
            first, count = tap * apart, result.shape[d]
            stop = first + (count - 1) * stride + 1
            nodes.append(sliced(graph.fresh(f"{of}_{tap}"), of, whole, d, first, stop, stride))
            cut.append((nodes[-1].name, nodes[-1].type))
        parts = cut
    largest = parts[0][0]
    for part, _ in parts[1:]:
        nodes.append(Node(graph.fresh(f"{part}_largest"), "maximum", (largest, part), result, torch_("maximum", X, Y)))
        largest = nodes[-1].name
    return graph.with_nodes_for(node.name, [*nodes, *channels_first(graph, nodes[-1], node, _ORDER, _BACK)])


def _weight_last(graph: OpGraph, weight: str) -> tuple[OpGraph, str]:
    """The weight with its channels last. One that is folded already is folded so."""
    type_ = graph.type(weight).permuted(_ORDER)
    name = graph.fresh(f"{weight}_last")
    folded = next((of for of in graph.folded if of.name == weight), None)
    call = folded.call if folded else X
    made = FoldedWeight(
        name, type_, call.method("permute", *_ORDER).method("contiguous"), folded.sources if folded else (weight,)
    )
    return graph.with_folded(made), name
