"""Which nodes of a graph can be one kernel: templates are asked, once for all kernels of one structure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Sequence

from kgen.compiler.fusion.programs import Programs
from kgen.compiler.fusion.template import Template, suits
from kgen.compiler.fusion.values import (
    connected,
    is_pointwise,
    kind_of,
    made_on_the_way,
    meets,
    readers,
    roots,
    used_outside,
    with_views,
)
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.loops.program import Program
from kgen.compiler.loops.transposes import IN_TILES, transpose_of
from kgen.compiler.lower.small_matrices import has_small_matrices
from kgen.compiler.operators.op import LOWERED, Kind
from kgen.compiler.operators.reductions import of_few
from kgen.compiler.operators.table import OPS
from kgen.compiler.rewrites.table import Variant

CHEAP_FLOPS = 1  # operations for each element; a map of no more is computed by each kernel that reads it, not stored
MANY_NODES = 64  # nodes; of a graph with more, fewer cuts are tried, since their number bounds the time

_NOT_ASKED = object()

#: The templates that take kernels, by their structure: kernels of other layers, and of other variants of the graph.
Asked = dict[tuple[Any, ...], "Template | None"]


@dataclass(frozen=True)
class Taken:
    """A kernel of some nodes and the views between and before them, which are among ``nodes``; it stores
    ``outputs``."""

    nodes: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Kernels:
    """The kernels that templates take of one variant of a graph."""

    variant: Variant
    templates: tuple[Template, ...]
    _asked: Asked
    _refused: set[tuple[Any, ...]]  # forms of nodes that make no kernel, of all variants
    programs: Programs
    _known: dict[tuple[str, ...], Taken | None] = field(default_factory=dict)

    @property
    def graph(self) -> OpGraph:
        return self.variant.graph

    @property
    def many(self) -> bool:
        """Whether the graph has so many nodes that fewer cuts are tried."""
        return len(self.graph.nodes) > MANY_NODES

    @cached_property
    def free(self) -> frozenset[str]:
        """Nodes that are in no run, since each kernel that reads them computes them."""
        return made_on_the_way(self.graph) | self._cheap

    @cached_property
    def _cheap(self) -> frozenset[str]:
        """Maps of one stored value that cost next to nothing: reading that value moves no more bytes than reading the
        map's result.

        Values that follow the batch inside of other dimensions, too, since no kernel stores them. Each kernel that
        reads such a result computes it. All its users are operators that a template takes with the map.
        """
        graph, found = self.graph, made_on_the_way(self.graph)
        kept = {root for r in graph.returns for root in roots(graph, found, r)} | graph.changed
        cheap: set[str] = set()
        for node in graph.nodes:
            if node.name in kept or not (self._is_cheap(node, cheap) or self._is_never_stored(node)):
                continue
            if any(kept & roots(graph, found | cheap, value) for value in node.values):
                continue
            wider = found | cheap | {node.name}
            if all(self._takes_up(user, wider) for user in readers(graph, found, node.name)):
                cheap.add(node.name)
        return frozenset(cheap)

    def _is_cheap(self, node: Node, cheap: set[str]) -> bool:
        """Whether the node is a map of few operations of an input, or of a value that has fewer bytes than its
        result."""
        if node.effect or node.name in made_on_the_way(self.graph) or node.op not in OPS or len(set(node.values)) != 1:
            return False
        of, result = self.graph.type(node.values[0]).nbytes, node.type.nbytes if node.type else 0
        stored = all(
            r in cheap or not self.graph.producer(r)
            for r in roots(self.graph, made_on_the_way(self.graph), node.values[0])
        )
        few = of_few(node) and stored and result >= of  # a thread that reads an element reads the others, too
        return few or (
            is_pointwise(node) and OPS[node.op].flops <= CHEAP_FLOPS and (result > of or (stored and result == of))
        )

    def _is_never_stored(self, node: Node) -> bool:
        """Whether the node can be a part of kernels alone: ``torch.stack((x, y))`` of tensors whose rows follow the
        batch."""
        type_ = node.type
        return (
            kind_of(node) in (Kind.INDEXED, Kind.POINTWISE)
            and not node.effect
            and any(type_.multiples[1:])
            and not type_.batch_inside
        )

    def _takes_up(self, user: Node, free: frozenset[str]) -> bool:
        """Whether a kernel of this node can compute the free nodes that it reads. A contraction may be a library
        call."""
        if kind_of(user) not in LOWERED - {Kind.CONTRACTION}:
            return False
        return self._template(next(with_views(self.graph, free, (user.name,))), (user.name,)) is not None

    def _taken(self, names: Sequence[str]) -> Taken | None:
        """The kernel of these nodes, if a template takes it.

        It stores every value that other nodes use, or the last value and effects alone where no template stores the
        others.
        """
        key = tuple(names)
        if key not in self._known:
            self._known[key] = self._find(key)
        return self._known[key]

    def _find(self, names: tuple[str, ...]) -> Taken | None:
        effects, used = [n for n in names if self.graph.node(n).effect], used_outside(self.graph, self.free, names)
        last = tuple(dict.fromkeys((*effects, names[-1])))
        for outputs in dict.fromkeys((used or last, last)):
            if self._returned & set(used) - set(outputs):
                continue  # no later kernel would store it
            for nodes in with_views(self.graph, self.free, names):
                if self._template(nodes, outputs) is not None:
                    return Taken(nodes, outputs)
        return None

    @cached_property
    def _returned(self) -> frozenset[str]:
        """The values that forward returns, or that views and free maps among these stand for."""
        return frozenset(root for r in self.graph.returns for root in roots(self.graph, self.free, r))

    def lowered(self, names: Sequence[str], outputs: Sequence[str], *, two_passes: bool = False) -> Program | None:
        return self.programs.lowered(tuple(names), tuple(outputs), two_passes=two_passes)

    def _template(self, nodes: Sequence[str], outputs: Sequence[str]) -> Template | None:
        """The template that takes the kernel of these nodes; models repeat their layers, so that most have been asked
        about."""
        alike = self.graph.structure(nodes, outputs)
        found = self._asked.get(alike, _NOT_ASKED)
        if found is _NOT_ASKED:
            found = self._asked[alike] = self._find_template(nodes, outputs)
        return found

    def _find_template(self, nodes: Sequence[str], outputs: Sequence[str]) -> Template | None:
        """The same, of one that has not been asked about. In a network, nodes make no kernel where others of their form
        made none."""
        form = self.graph.form(nodes, outputs) if self.many else None
        if form in self._refused:
            return None
        program = self.lowered(nodes, outputs)
        if program is None and form is not None:
            self._refused.add(form)
        if program and any(self.graph.node(n).attrs == IN_TILES for n in nodes) and transpose_of(program) is None:
            return None
        return next((template for template in self.templates if program and suits(template, self.graph, program)), None)

    def takes(self, piece: Sequence[Node]) -> bool:
        """Whether these nodes can be one kernel. A product of small matrices may meet a chain of others behind it."""
        names = [n.name for n in piece]
        return (
            connected(self.graph, self.free, piece)
            or (has_small_matrices(self.graph, names) and meets(self.graph, self.free, piece))
        ) and self._taken(names) is not None

    def fusable(self, node: Node) -> bool:
        """Whether the node can be a kernel of its own."""
        return kind_of(node) in LOWERED and node.name not in self.free and self.takes((node,))
