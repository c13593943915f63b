"""Precisions: whether PyTorch multiplies a convolution or recurrent layers in TF32 on a GPU, and so how many products
a kernel takes.

A sweep measures it (:class:`~kgen.protocol.LibraryProduct`). On paper it is predicted: cuDNN computes in
float32 where there are several groups, and where an ordinary convolution has few channels. That agrees with 420 of 439
measured convolutions of KernelBench's problems (H200, PyTorch 2.11). Recurrent layers are predicted in TF32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Sequence

from kgen.compiler.capture.capture import Capture
from kgen.compiler.graph.convolutions import convolution
from kgen.compiler.graph.dtypes import is_narrow
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.rewrites.recurrence import CALLS, layers_of
from kgen.protocol import LibraryProduct

FEW_CHANNELS = {1: 8, 2: 8, 3: 3}  #: the most channels in for which cuDNN computes in float32, by spatial dimensions


@dataclass(frozen=True)
class Precision:
    """How PyTorch multiplies a convolution or recurrent layers, how many products a kernel of kgen takes, and why."""

    name: str
    tf32: bool
    reason: str

    @property
    def products(self) -> int:
        """Products of float16 terms: one is as accurate as TF32, three as float32."""
        return 1 if self.tf32 else 3


def measured(capture: Capture, products: Sequence[LibraryProduct]) -> Capture:
    """The graphs with each call of cuDNN marked that it multiplied in TF32, at its own and at every tested batch
    size."""
    by_shape: dict[object, tuple[bool, bool]] = {}
    for one in products:
        kind = one.operator, one.input, one.weight, one.stride, one.padding, one.dilation, one.groups, one.transposed
        own, every = by_shape.get(kind, (True, True))
        by_shape[kind] = own and one.tf32_at_most_rows, every and one.tf32

    def marks(graph: OpGraph, node: Node) -> tuple[bool, bool]:
        return by_shape.get(_kind(graph, node), (False, False))

    return replace(capture, graphs=tuple((mode, _marked(graph, marks)) for mode, graph in capture.graphs))


def predicted(graph: OpGraph) -> tuple[OpGraph, tuple[Precision, ...]]:
    """The graph with each call of cuDNN marked that it probably multiplies in TF32, and the reason for each of all."""
    found = tuple(Precision(node.name, not exact, exact or why) for node, exact, why in _products(graph))
    tf32 = {one.name: one.tf32 for one in found}
    return _marked(graph, lambda _, node: (tf32[node.name], tf32[node.name])), found


def guessed(capture: Capture) -> Capture:
    """The graphs with :func:`predicted` marks."""
    return replace(capture, graphs=tuple((mode, predicted(graph)[0]) for mode, graph in capture.graphs))


def _kind(graph: OpGraph, node: Node) -> tuple[object, ...]:
    """The operator of a call of cuDNN, its shapes and its attributes, as in :class:`~kgen.protocol.LibraryProduct`."""
    if node.op in CALLS:
        of = layers_of(graph, node)
        assert of is not None
        x, weight = (graph.type(name).shape for name in (of.x, of.params[0][0]))
        return "aten._cudnn_rnn", x, weight, (), (), (), 1, False
    shapes = (graph.type(name).shape for name in node.values[:2])
    attributes = (node[name] for name in ("stride", "padding", "dilation", "groups", "transposed"))
    return "aten.convolution", *shapes, *attributes


def _products(graph: OpGraph) -> list[tuple[Node, str, str]]:
    """The products of cuDNN of float32 tensors: why it probably computes each in float32 (empty where in TF32), and why
    else in TF32."""
    found = []
    for node in graph.nodes:
        if node.op in CALLS:
            of = layers_of(graph, node)
            if of is not None and not is_narrow(graph.type(of.x).dtype):
                found.append((node, "", "recurrent layers"))
            continue
        window = convolution(graph, node) if node.type is not None and not is_narrow(node.type.dtype) else None
        if window is not None:
            few = not window.transposed and window.channels_in <= FEW_CHANNELS[len(window.lines)]
            several = f"{window.groups} groups" if window.groups > 1 else ""
            exact = several or (f"{window.channels_in} channels" if few else "")
            found.append((node, exact, "enough channels in one group"))
    return found


def _marked(graph: OpGraph, marks: Callable[[OpGraph, Node], tuple[bool, bool]]) -> OpGraph:
    """The graph with what ``marks`` says of each product: TF32 at its own batch size, and at every one."""
    found = {node.name: marks(graph, node) for node, *_ in _products(graph)}
    if not any(map(any, found.values())):
        return graph
    return replace(
        graph,
        nodes=tuple(
            replace(n, tf32=found[n.name][0], products=1 if all(found[n.name]) else 3) if n.name in found else n
            for n in graph.nodes
        ),
    )
