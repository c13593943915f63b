"""Fusion plans: ways to cut a graph into kernels of our own and library calls.

    linear ── gelu ── softmax
    ├─ [linear] + [gelu, softmax]                      two kernels, where a template takes contractions
    ├─ [linear, gelu] + [softmax]                      the same, with gelu in the epilogue of the contraction
    ├─ linear(library) + [gelu, softmax]               one kernel behind the library's contraction
    ├─ linear(library) + [gelu] + [softmax]            one kernel for each operator
    └─ linear(library) + gelu(library) + softmax(library)    the control: every operator is a library call

In a plan's name, the name of the kernel's template stands before each bracket.

Operators that follow one another and that templates take form *runs*. A plan cuts each run into kernels. An operator
that no template takes stays a library call. Some templates do not store the values that a kernel computes on its way.
A later kernel computes such a value again from stored ones. Views and cheap maps of one stored value are in no run:
each kernel that reads one computes it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Callable, Sequence

from kgen.compiler.fusion.cutter import MOST_PLANS, Cutter
from kgen.compiler.fusion.kernels import Asked
from kgen.compiler.fusion.programs import Lowered, Programs
from kgen.compiler.fusion.steps import FusionPlan, Kernel, Library, is_not_shown, plan_of
from kgen.compiler.fusion.template import Template
from kgen.compiler.fusion.values import is_contraction, kind_of
from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.operators.library import LIBRARY_PARTS
from kgen.compiler.operators.op import Kind
from kgen.compiler.rewrites.table import Variant, variants

#: Puts plans and the control in the order to try them, :data:`MOST_PLANS` at most.
Order = Callable[[Sequence[FusionPlan], FusionPlan], Sequence[FusionPlan]]


def control_last(found: Sequence[FusionPlan], control: FusionPlan) -> Sequence[FusionPlan]:
    """The first plans as they are, then the control."""
    return (*found[: MOST_PLANS - 1], control)


def plans(graph: OpGraph, templates: Sequence[Template], order: Order = control_last) -> tuple[FusionPlan, ...]:
    """All plans for a graph: for each of its rewritten variants, each way to cut its runs; and the control.

    ``templates`` are those that the device can run. ``order`` takes the plans with the fewest steps besides
    contractions first; by default it keeps that order.
    """
    found: dict[tuple, FusionPlan] = {}
    asked: tuple[Asked, Asked] = {}, {}
    refused: set[tuple[Any, ...]] = set()
    lowered = _programs_of(graph)
    everything = rewritten(graph, templates)
    own_moments = any(kind_of(n) is Kind.MOMENTS for v in everything for n in v.graph.nodes)
    for variant in reversed(everything):
        # A library call updates running statistics in float32, with errors of its own.
        unbiased_only = own_moments and any(kind_of(n) is Kind.BATCH_NORM and n.effect for n in variant.graph.nodes)
        usable = tuple(t for t in templates if not (unbiased_only and t.biased))
        for plan in Cutter(variant, usable, asked[unbiased_only], refused, Programs(variant.graph, lowered)).plans():
            found.setdefault((plan.graph, plan.steps), plan)
    control = plan_of(Variant((), graph), [Library(n.name) for n in graph.nodes], Programs(graph, lowered))
    return tuple(order(sorted(found.values(), key=_steps_besides_contractions), control))


@lru_cache(maxsize=4)
def _programs_of(graph: OpGraph) -> Lowered:
    """The programs of all variants of a graph, which are the same for all devices; begun empty, for its plans to
    fill."""
    return {}


def rewritten(graph: OpGraph, templates: Sequence[Template]) -> tuple[Variant, ...]:
    """The variants of a graph that templates can run."""
    return variants(graph, _whole(graph, templates), frozenset().union(*(t.offers for t in templates)))


def _whole(graph: OpGraph, templates: Sequence[Template]) -> frozenset[str]:
    """Nodes whose decompositions have a part that no template takes: they are better left to the library as a whole."""
    whole: frozenset[str] = frozenset()
    while any(n.parts and n.name not in whole for n in graph.nodes):
        variant = variants(graph, whole)[-1]
        cutter = Cutter(variant, tuple(templates), {}, set(), Programs(variant.graph, _programs_of(graph)))
        parts = [n for n in cutter.graph.nodes if n.origin and n.name not in cutter.free and n.op not in LIBRARY_PARTS]
        left = {n.origin for n in parts if not cutter.fusable(n)}
        if left <= whole:
            break
        whole |= left
    return whole


def _steps_besides_contractions(plan: FusionPlan) -> int:
    """Kernels and library calls without a contraction; views and bookkeeping do not count."""
    steps = (step.nodes if isinstance(step, Kernel) else (step.node,) for step in plan.steps)
    nodes = ([plan.graph.node(name) for name in names] for names in steps)
    return sum(not (any(map(is_contraction, step)) or all(is_not_shown(plan.graph, n) for n in step)) for step in nodes)
