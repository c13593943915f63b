"""The interface of a template to fusion, which is handed the device's templates: the compiler imports none."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Protocol, Sequence

from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.loops.program import Program
from kgen.compiler.rewrites.rewrite import Offer


class Template(Protocol):
    """One schedule of loop programs on one kind of device."""

    @property
    def name(self) -> str:
        """The schedule's name. It stands before the brackets in a plan's name."""

    @property
    def in_place(self) -> bool:
        """Whether a kernel may write its result over an operand that it reads at the same elements."""

    @property
    def biased(self) -> bool:
        """Whether errors of a column have the same sign in every row, so that a mean over the batch keeps them.

        Moments of such values are computed in float64, in kernels of our own: the library's batch norm adds errors of
        its own to them.
        """

    @property
    def offers(self) -> AbstractSet[Offer]:
        """The offers of a device with this schedule, by which rewrites take part."""

    def takes(self, program: Program, /) -> bool:
        """Whether a kernel of this schedule computes the program, with all that it stores."""

    def copied(self, program: Program, /) -> Sequence[str]:
        """The operands that a kernel of the program keeps in another form where they are weights: packed, or split into
        terms."""


def suits(template: Template, graph: OpGraph, program: Program) -> bool:
    """Whether a template computes a program of the graph, without copies of weights where the graph wants none."""
    return template.takes(program) and (graph.weight_copies or not any(map(graph.is_weight, template.copied(program))))
