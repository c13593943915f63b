"""The loop programs of kernels: each is lowered once for all plans of all variants of a graph."""

from __future__ import annotations

from typing import Any

from kgen.compiler.graph.graph import NotFusable, OpGraph
from kgen.compiler.loops.program import Program
from kgen.compiler.lower.lowering import lower
from kgen.compiler.lower.small_matrices import has_small_matrices, small_matrices

#: Programs by their nodes, with the names of all values; ``None`` where nodes make no kernel.
Lowered = dict[tuple[Any, ...], Program | None]

#: Reductions in one pass that may be made in two.
_TWO_WAYS = frozenset(("softmax", "moments"))


class Programs:
    """The programs of nodes of one variant. ``shared`` has those of all variants: most nodes are the same in each."""

    def __init__(self, graph: OpGraph, shared: Lowered | None = None) -> None:
        self._graph = graph
        self._shared: Lowered = {} if shared is None else shared
        self._own: dict[tuple[tuple[str, ...], tuple[str, ...], bool], Program | None] = {}

    def lowered(self, nodes: tuple[str, ...], outputs: tuple[str, ...], *, two_passes: bool = False) -> Program | None:
        """The program of these nodes, which stores ``outputs``; ``None`` where they make no kernel."""
        key = nodes, outputs, two_passes
        if key not in self._own:
            program = self.lowered(nodes, outputs) if two_passes else None
            alike = program is not None and _TWO_WAYS.isdisjoint(r.kind for r in program.reductions)
            self._own[key] = program if alike else self._found(nodes, outputs, two_passes)
        return self._own[key]

    def _found(self, nodes: tuple[str, ...], outputs: tuple[str, ...], two_passes: bool) -> Program | None:
        key = (*self._graph.named_structure(nodes, outputs), two_passes)
        if key not in self._shared:
            try:
                self._shared[key] = _lowered(self._graph, nodes, outputs, two_passes)
            except NotFusable:
                self._shared[key] = None
        return self._shared[key]


def _lowered(graph: OpGraph, nodes: tuple[str, ...], outputs: tuple[str, ...], two_passes: bool) -> Program:
    """The program of loops over elements, or else that of products of small matrices. Raises :class:`NotFusable` where
    there is none.

    Schedules of other contractions read floats alone: no masks of bools, and no places.
    """
    try:
        found = lower(graph, nodes, outputs, two_passes=two_passes)
    except NotFusable:
        if has_small_matrices(graph, nodes):
            return small_matrices(graph, nodes, outputs)
        raise
    if found.contraction and not found.floats and has_small_matrices(graph, nodes):
        return small_matrices(graph, nodes, outputs)
    return found
