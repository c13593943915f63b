"""The plans of one variant of a graph: each choice of cuts, as steps."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from typing import Iterator, Sequence

from kgen.compiler.fusion.cuts import Cuts, pieces_of
from kgen.compiler.fusion.kernels import MANY_NODES, Taken
from kgen.compiler.fusion.overwriting import overwritten
from kgen.compiler.fusion.steps import FusionPlan, Kernel, Library, Step, kernel_name, plan_of
from kgen.compiler.fusion.values import in_runs, is_contraction, on_the_way, pulled, roots
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.operators.facts import label

MOST_PLANS = 24  # plans of a problem; those with the fewest steps come first
# Rounds in which a choice of cuts is cut further, because its kernels lack values that no other one stores.
REPAIRS = 4

#: A part of a choice of cuts: the nodes of a kernel, or a library call.
Piece = tuple[Node, ...] | Node


class Cutter(Cuts):
    """The ways to cut one variant of a graph into kernels that templates take, and library calls."""

    def plans(self) -> Iterator[FusionPlan]:
        """The variant's plans: those with contractions of our own, then those that leave them to the library."""
        own = frozenset(n.name for n in self.graph.nodes if self.fusable(n))
        rest = frozenset(name for name in own if not is_contraction(self.graph.node(name)))
        if any(n.call is None and n.name not in own | self._cheap for n in self.graph.nodes):
            return  # no library call computes that operator
        for fusable in dict.fromkeys((own.union(*self._attention), own, rest)):
            yield from self._plans_without_spoilers(fusable)

    def _plans_without_spoilers(self, fusable: frozenset[str]) -> Iterator[FusionPlan]:
        """The plans of these nodes. Where there are none, a value that a kernel must compute again and cannot is a
        library call.

        ``embedding(ids)`` is such a value: a reduction does not store it, and no linear layer looks it up to add it.
        """
        spoilers: set[str] = set()
        found = list(self._plans_of(fusable, spoilers))
        calls = frozenset(name for name in spoilers & fusable if self.graph.node(name).call is not None)
        if found or not calls:
            yield from found
        else:
            yield from self._plans_without_spoilers(fusable - calls)

    def _plans_of(self, fusable: frozenset[str], spoilers: set[str]) -> Iterator[FusionPlan]:
        """Each way to cut the runs of these nodes; all others are library calls. ``spoilers`` are added to."""
        ordered = in_runs(self.graph, self.free, fusable, [group for group in self._attention if group <= fusable])
        runs = [list(run) for _, run in itertools.groupby(ordered, lambda n: n.name in fusable)]
        most = _most_choices(self.graph)
        options = [list(itertools.islice(self._cuts(run), most)) if run[0].name in fusable else [None] for run in runs]
        found = False
        for choice in itertools.islice(itertools.product(*options), most):
            pieces = [piece for run, cut in zip(runs, choice) for piece in (run if cut is None else cut)]
            steps = self._repaired(fusable, pieces, spoilers) if not found else self.steps(fusable, pieces, spoilers)
            if steps is not None and (any(isinstance(s, Kernel) for s in steps) or self.graph.folded):
                found = True
                yield plan_of(self.variant, steps, self.programs)

    def _repaired(self, fusable: frozenset[str], pieces: list[Piece], spoilers: set[str]) -> tuple[Step, ...] | None:
        """The steps of a choice of cuts. A value that a kernel does not store, and others need stored, becomes a kernel
        of its own."""
        for _ in range(REPAIRS):
            needed: set[str] = set()
            steps = self.steps(fusable, pieces, needed)
            if steps is not None:
                return steps
            spoilers |= needed
            again: list[Piece] = []
            cut = False  # whether the piece in front is the rest of one that was cut: the next one may go on with it
            for piece in pieces:
                parts = list(self._cut_out(piece, needed))
                if cut and not isinstance(piece, Node) and len(parts) == 1 and self.takes((*again[-1], *piece)):
                    again[-1] = (*again[-1], *piece)
                else:
                    again += parts
                cut = len(parts) > 1 and parts[-1][-1].name not in needed
            if again == pieces:
                break
            pieces = again
        return None

    def _cut_out(self, piece: Piece, values: set[str]) -> Iterator[Piece]:
        """The piece in parts: each of the values alone, and what stands between them in as few kernels as it takes."""
        if isinstance(piece, Node) or values.isdisjoint(n.name for n in piece):
            yield piece
            return
        for number, group in itertools.groupby(enumerate(piece), lambda at: at[0] if at[1].name in values else -1):
            nodes = [node for _, node in group]
            yield from [(nodes[0],)] if number >= 0 else pieces_of(nodes, self._greedy(nodes))

    def steps(self, fusable: frozenset[str], pieces: Sequence[Piece], spoilers: set[str]) -> tuple[Step, ...] | None:
        """The steps of one choice of cuts, with each kernel's name and outputs; ``None`` where a value is missing.

        ``spoilers`` then gets the values that are not stored, and that a library call reads or no template computes
        again.
        """
        graph = self.graph
        libraries = {n.name for n in graph.nodes} - fusable
        stored = libraries - self.free
        kernels: dict[int, Taken] = {}
        for number, piece in enumerate(pieces):
            if isinstance(piece, Node):
                continue
            taken = self._taken([n.name for n in piece])
            assert taken is not None, "a cut has pieces that templates take"
            kernels[number] = self._complete(taken, stored)
            stored.update(taken.outputs)
        missing = {root for root in self._returned if root in fusable and root not in stored}
        whole = True
        last_read: dict[str, float] = {}  # the number of the last step that reads each value
        for number, piece in enumerate(pieces):
            for name in kernels[number].nodes if number in kernels else (piece.name,):
                last_read.update(dict.fromkeys(graph.node(name).values, number))
        last_read.update(dict.fromkeys(graph.returns, math.inf))
        steps: list[Step] = []
        called: set[str] = set()  # the nodes that library calls among the steps compute
        taken_names: set[str] = set()
        for number, piece in enumerate(pieces):
            if isinstance(piece, Node):
                read = {root for v in piece.values for root in roots(graph, self.free, v)}
                missing |= {root for root in read if root not in stored and graph.producer(root)}
                steps += self._views_of(piece.values, called)
                steps.append(Library(piece.name))
                called.add(piece.name)
                continue
            taken = kernels[number]
            template = self._template(taken.nodes, taken.outputs)
            if template is None:
                missing |= set(taken.nodes) - {n.name for n in piece} - self.free
                whole = False
                continue
            program = self.lowered(taken.nodes, taken.outputs)
            steps += self._views_of(program.operands, called)
            over = None
            if template.in_place:
                in_two_passes = partial(self.lowered, taken.nodes, taken.outputs, two_passes=True)
                over = overwritten(
                    graph,
                    program,
                    in_two_passes,
                    libraries,
                    lambda value, number=number: last_read.get(value, -1) > number,
                )
            own = {n.name for n in piece} | self._cheap
            name = kernel_name([label(graph.node(n)) for n in taken.nodes if n in own], taken_names)
            steps.append(Kernel(name, template.name, taken.nodes, taken.outputs, over))
        spoilers |= missing
        if missing or not whole:
            return None
        steps += self._views_of(graph.returns, called)
        return tuple(steps)

    def _complete(self, taken: Taken, stored: set[str]) -> Taken:
        """The kernel with the values that an earlier kernel computed and did not store: they are computed again."""
        nodes = list(taken.nodes)
        for name in taken.nodes:
            nodes = pulled(self.graph, self.free, self.graph.node(name), stored, nodes) + nodes
        return replace(taken, nodes=tuple(dict.fromkeys(nodes)))

    def _views_of(self, values: Sequence[str], made: set[str]) -> list[Step]:
        """The library's calls that make these values on the way, but for those that are ``made``, to which they are
        added."""
        found = dict.fromkeys(n for v in values for n in on_the_way(self.graph, self.free, v) if n not in made)
        made.update(found)
        return [*map(Library, found)]


def _most_choices(graph: OpGraph) -> int:
    """How many combinations of cuts are tried of one variant."""
    return max(MOST_PLANS // 4, 4 * MOST_PLANS * MANY_NODES // max(MANY_NODES, len(graph.nodes)))
