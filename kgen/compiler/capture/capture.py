"""Capture: the graphs of a problem's forward, with ``torch.export``.

problem ── tracing ──> exported programs ── reading ──> OpGraph, one for each mode
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kgen import plugins
from kgen.compiler.capture.graph_builder import read
from kgen.compiler.capture.tracing import notice_reads_of_training, trace
from kgen.compiler.graph.graph import OpGraph, memory_order
from kgen.errors import CaptureError, ProblemError

if TYPE_CHECKING:
    from kgen.problems.problem import LoadedProblem

_OTHER = {"train": "eval", "eval": "train"}

#: Operators that drop values at random; where they drop none, they are identities of the table.
_DROPS = frozenset(
    f"aten.{name}.default" for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
)


@dataclass(frozen=True)
class Capture:
    """One graph for each of the problem's modes; ``same`` where train and eval are the same computation."""

    graphs: tuple[tuple[str, OpGraph], ...]
    same: bool = field(default=False)

    def without_weight_copies(self) -> Capture:
        """The graphs whose plans keep no weight in another form beside it."""
        return replace(self, graphs=tuple((mode, replace(graph, weight_copies=False)) for mode, graph in self.graphs))

    def laid_out(self, layouts: Mapping[str, Sequence[Sequence[Sequence[int]]]]) -> Capture:
        """The graphs with outputs as PyTorch stores them on a device: by mode, the sizes and strides of each tensor.

        Sizes and strides of a batch of one row may stand behind these: PyTorch may store it in another order.

        Export's own strides are those of the CPU: group norm of images with channels last keeps them there alone.
        """
        return replace(
            self, graphs=tuple((mode, _laid_out(graph, layouts.get(mode, ()))) for mode, graph in self.graphs)
        )


def _laid_out(graph: OpGraph, layouts: Sequence[Sequence[Sequence[int]]]) -> OpGraph:
    types = [graph.known_type(name) for name in graph.returns]
    if len(layouts) != len(types) or any(
        t is not None and len(t.shape) != len(sizes) for t, (sizes, *_) in zip(types, layouts)
    ):
        return graph
    orders = tuple(memory_order(*layout[:2]) for layout in layouts)
    output, lead = graph.output, next((i.type for i in graph.inputs if i.name == graph.batch_input), None)
    for name, order, (_, _, *of_one) in zip(graph.returns, orders, layouts):
        if of_one and lead is not None and lead.multiples[0] == 1 and graph.returns.count(name) == 1:
            output = _with_order_of_one_row(output, f"{{{name}}}", order, *of_one)
    return replace(graph, orders=orders if any(orders) else (), output=output)


def _with_order_of_one_row(
    output: str, value: str, order: Sequence[int], sizes: Sequence[int], strides: Sequence[int]
) -> str:
    """The source of forward's output with a value, whose order in memory is ``order``, in PyTorch's order where the
    batch is one row.

    PyTorch leaves dimensions of one element out of a contraction: a batch of one may then lie otherwise than larger
    ones.
    """
    own = range(len(sizes))
    wanted = memory_order(sizes, strides) or tuple(own)
    if [d for d in order or own if sizes[d] > 1] == [d for d in wanted if sizes[d] > 1]:
        return output
    turned, back = (f".permute({', '.join(map(str, dims))})" if dims != tuple(own) else ""
                    for dims in (wanted, tuple(sorted(own, key=wanted.index))))  # fmt: skip
    chosen = f"{value} if batch_size > 1 else {value}{turned}.contiguous(){back}"
    return chosen if output == value else output.replace(value, f"({chosen})")


def capture(loaded: "LoadedProblem", device_type: str = "cpu") -> Capture:
    """Capture the problem's forward in each of its modes, as it is on a kind of device, which need not be there.

    The modes share one graph where no module reads ``training``.

    Raises :class:`CaptureError`, one line, where the forward cannot be exported or holds float64, complex128 or sparse
    tensors, and :class:`kgen.errors.ProblemError` where the problem's own functions raise.
    """
    plugins.load()
    first, *others = loaded.problem.modes
    with notice_reads_of_training() as reads:
        graph = _capture_mode(loaded, first, device_type)
    graphs, same = {first: graph}, not reads
    for mode in others:
        graphs[mode] = _capture_mode(loaded, mode, device_type) if reads else graph
        same = graphs[mode] == graph
    if reads and not others and not _is_of_training(graph):
        try:
            same = _capture_mode(loaded, _OTHER[first], device_type) == graph
        except CaptureError:
            same = False
    return Capture(tuple(graphs.items()), same)


def _is_of_training(graph: OpGraph) -> bool:
    """Whether the graph updates running statistics or drops values: as good as always, the other mode does not."""
    return any((node.op == "batch_norm" and node.effect) or node.op in _DROPS for node in graph.nodes)


def _capture_mode(loaded: "LoadedProblem", mode: str, device_type: str) -> OpGraph:
    """The graph of one mode; on real weights where fake ones lack a value that is needed."""
    try:
        found = read(trace(loaded, mode, device_type))
    except ProblemError:
        found = read(trace(loaded, mode, device_type, real=True))
    if not found.inputs:
        raise CaptureError(f"{loaded.problem.path}: forward takes no tensor")
    return found
