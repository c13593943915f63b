"""Cuts of runs: where operators that follow one another become several kernels."""

from __future__ import annotations

import itertools
from functools import cached_property
from typing import Iterator, Sequence

from kgen.compiler.fusion.kernels import Kernels
from kgen.compiler.fusion.values import is_contraction, is_pointwise, kind_of, of_one_recurrence, roots, used_outside
from kgen.compiler.graph.graph import Node
from kgen.compiler.lower.small_matrices import has_small_matrices
from kgen.compiler.operators.op import LOWERED

ALL_CUTS = 4  # cuts; runs with more possible cuts are cut only in the ways that matter most
#: Nodes; of a longer run, a few further cuts are tried, spread over it: a loop that forward unrolls repeats itself.
LONG_RUN = 32
SOME_CUTS = 4  # further cuts of a long run
LONG_PIECE = 16  # nodes; a kernel of more grows by several at a time
MOST_ATTENDING = 32  # nodes from one contraction to another, with a softmax between; chains of residuals have more


class Cuts(Kernels):
    """The ways to cut runs of one variant of a graph."""

    def _cuts(self, run: list[Node]) -> Iterator[tuple[tuple[Node, ...], ...]]:
        """Ways to cut a run into kernels, each of which a template takes; the most fused first."""
        tried: set[tuple[bool, ...]] = set()
        if self.many and len(run) - 1 > ALL_CUTS:
            greedy = self._greedy(run)
            merged = self._merged(pieces_of(run, greedy))
            if len(merged) <= sum(greedy):
                yield merged
        for mask in self._masks(run):
            pieces = pieces_of(run, mask)
            if mask not in tried and all(self.takes(piece) for piece in pieces) and not self._half_fused(pieces):
                yield pieces
            tried.add(mask)

    def _merged(self, pieces: Sequence[tuple[Node, ...]]) -> tuple[tuple[Node, ...], ...]:
        """The pieces with two neighbours as one kernel where the piece in front of them leaves its last nodes to it.

        ``[linear, add, square] [mean, rsqrt] [mul]`` becomes ``[linear, add] [square, mean, rsqrt, mul]``: a kernel
        less, and the squares are not stored.
        """
        left, at = list(pieces), 0
        while at + 2 < len(left):
            first, second, third = left[at : at + 3]
            for kept in range(len(first) - 1, 0, -1):
                both = (*first[kept:], *second, *third)
                if self.takes(both) and self.takes(first[:kept]):
                    left[at : at + 3] = [first[:kept], both]
                    break
            else:
                at += 1
        return tuple(left)

    def _masks(self, run: list[Node]) -> Iterator[tuple[bool, ...]]:
        """Where a run may be cut, in the order of :meth:`_cuts`; of a long run, each takes long to find."""
        length = len(run)
        if length - 1 <= ALL_CUTS:
            yield from sorted(itertools.product((False, True), repeat=length - 1), key=sum)
            return
        greedy = self._greedy(run)
        yield greedy
        yield self._greedy(run, bare_contractions=True)
        yield self._greedy(run, narrow=True)
        more = [at for at in range(length - 1) if not greedy[at]]
        more = more[:: max(1, -(-len(more) // SOME_CUTS))] if length > LONG_RUN else more
        yield from (tuple(g or i == at for i, g in enumerate(greedy)) for at in more)
        yield from ((*greedy[:at], True, *self._greedy(run[at + 1 :])) for at in more)  # the rest may be longer pieces
        yield (True,) * (length - 1)

    def _half_fused(self, pieces: Sequence[tuple[Node, ...]]) -> bool:
        """Whether a contraction leaves a pointwise operator that it could take to another kernel, and cannot win so.

        That is so where it took others already, or where the other kernel is pointwise as a whole. Two kernels with
        results of one recurrence cannot win, either.
        """
        if any(of_one_recurrence(piece[-1], following[0]) for piece, following in zip(pieces, pieces[1:])):
            return True
        return any(
            is_contraction(piece[0])
            and is_pointwise(following[0])
            and (len(piece) > 1 or all(is_pointwise(n) for n in following))
            and self.takes((*piece, following[0]))
            for piece, following in zip(pieces, pieces[1:])
        )

    def _greedy(self, run: Sequence[Node], bare_contractions: bool = False, narrow: bool = False) -> tuple[bool, ...]:
        """Cuts such that each piece is as long as it can be; bare contractions stand alone.

        A ``narrow`` piece that another one follows ends where it stores the fewest bytes.
        """
        mask: list[bool] = []
        while len(mask) < len(run):
            rest = run[len(mask) :]
            length = 1 if bare_contractions and is_contraction(rest[0]) else self._longest(rest)
            length = self._narrowest(rest[:length]) if narrow and length < len(rest) else length
            mask += [*[False] * (length - 1), True]
        return tuple(mask[:-1])

    def _narrowest(self, piece: Sequence[Node]) -> int:
        """How many nodes from the first leave the fewest bytes to later ones; the most of those that leave as few."""
        names = [n.name for n in piece]

        def stored(length: int) -> int:
            return sum(self.graph.type(name).nbytes for name in used_outside(self.graph, self.free, names[:length]))

        lengths = sorted(range(1, len(piece) + 1), key=lambda length: (stored(length), -length))
        return next(length for length in lengths if length == len(piece) or self.takes(piece[:length]))

    def _longest(self, run: Sequence[Node]) -> int:
        """How many nodes from the first make a kernel to which the next one cannot be added.

        A kernel of many nodes grows by several at a time: each attempt lowers them all.
        """
        length, step, growing = self._attending(run), 1, True
        while step:
            if length + step <= len(run) and self.takes(run[: length + step]):
                length += step
                step = step * 2 if growing and length >= LONG_PIECE else max(1, step // 2)
            elif step == 1 and self._meets_small_product(run, length):
                length += 2
            else:
                step, growing = step // 2, False
        return length

    def _meets_small_product(self, run: Sequence[Node], length: int) -> bool:
        """Whether the next node multiplies small matrices, and the one behind it joins that product and the first
        nodes."""
        names = [n.name for n in run[length : length + 2]]
        return len(names) == 2 and has_small_matrices(self.graph, names) and self.takes(run[: length + 2])

    @cached_property
    def _attention(self) -> tuple[frozenset[str], ...]:
        """The nodes of two contractions with a softmax between that make one kernel. By itself, each may make none."""
        found: list[frozenset[str]] = []
        for node in filter(is_contraction, self.graph.nodes):
            names, waiting = {node.name}, [*roots(self.graph, self.free, node.values[0])]
            while waiting and len(names) < MOST_ATTENDING:
                before = self.graph.producer(waiting.pop())
                if before is None or before.name in names or kind_of(before) not in LOWERED:
                    continue
                names.add(before.name)
                if not is_contraction(before):
                    waiting += [root for v in before.values for root in roots(self.graph, self.free, v)]
            between = [n for n in self.graph.nodes if n.name in names]
            if len(between) > 2 and any(n.op == "softmax" for n in between) and self.takes(between):
                found.append(frozenset(names))
        return tuple(found)

    def _attending(self, run: Sequence[Node]) -> int:
        """How many nodes from the first are two contractions with a softmax between that make one kernel; 1 where they
        do not."""
        if not is_contraction(run[0]):
            return 1
        end = next((at for at, node in enumerate(run[1:], 1) if is_contraction(node)), 0)
        return end + 1 if any(n.op == "softmax" for n in run[:end]) and self.takes(run[: end + 1]) else 1


def pieces_of(run: Sequence[Node], mask: Sequence[bool]) -> tuple[tuple[Node, ...], ...]:
    ends = [0, *(at for at, cut in enumerate(mask, 1) if cut), len(run)]
    return tuple(tuple(run[start:end]) for start, end in itertools.pairwise(ends))
