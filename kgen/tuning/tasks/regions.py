"""Plans put together region by region from several plans of one graph: each takes the steps that are fastest.

    SCHEDULE[linear, gelu] + SCHEDULE[linear, add] + SCHEDULE[layer_norm]                  a plan
    linear(library) + SCHEDULE[gelu] + linear(library) + SCHEDULE[add, layer_norm]         another one
    SCHEDULE[linear, gelu] + linear(library) + SCHEDULE[add, layer_norm]                   the best of both

A region lies between two places where plans have computed the same values. A plan may go on there as any other one
does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf

from kgen.candidate import Plan, PlanStep
from kgen.compiler.fusion.steps import FusionPlan, Kernel, Library, Step, kernel_name
from kgen.compiler.fusion.values import made_on_the_way
from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.operators.facts import is_unnamed, is_view, label
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS
from kgen.tuning.tasks.left import in_library

#: The time of a step of a plan in milliseconds, by the plan's number and the step's, and whether the library computes
#: it. It is infinite where the step is left out.
Cost = Callable[[int, int, bool], float]

_KEPT = frozenset(("copy", "cast"))  #: operators of the library whose result may be the operand itself


@dataclass(frozen=True)
class _Stretch:
    """Steps of a plan from one of its places to the next one; kernels among them may be left to the library.

    A place is the set of values that are computed there.
    """

    plan: int
    steps: tuple[int, ...]
    end: int
    library: bool = False


def fastest(plans: Sequence[FusionPlan], cost: Cost) -> FusionPlan | None:
    """The plan of the fastest steps of these plans of one graph; ``None`` where that is one of them, or lacks a value.

    Among equal ones, earlier plans come first.
    """
    ahead, last = _stretches(plans)
    waiting: list[tuple[float, int, int, tuple[_Stretch, ...]]] = [(0.0, 0, 0, ())]
    seen: set[int] = set()
    count = 0
    while waiting:
        ms, _, place, path = heappop(waiting)
        if place in seen:
            continue
        seen.add(place)
        if place == last:
            return _put_together(plans, path) if len({(s.plan, s.library) for s in path}) > 1 else None
        for stretch in ahead.get(place, ()):
            count += 1
            spent = sum(cost(stretch.plan, step, stretch.library) for step in stretch.steps)
            if spent < inf:
                heappush(waiting, (ms + spent, count, stretch.end, (*path, stretch)))
    return None


def named(plans: Sequence[FusionPlan], wanted: Sequence[PlanStep]) -> FusionPlan | None:
    """The plan of steps of these plans that has the ``wanted`` steps; ``None`` where there is none."""
    ahead, last = _stretches(plans)
    left: list[tuple[int, int, tuple[_Stretch, ...]]] = [(0, 0, ())]
    seen: set[tuple[int, int]] = set()
    while left:
        place, at, path = left.pop()
        if place == last and at == len(wanted):
            return _put_together(plans, path)
        if (place, at) in seen:
            continue
        seen.add((place, at))
        for stretch in reversed(ahead.get(place, ())):
            names = [name for step in _steps(plans, stretch) if (name := _shown(plans[0].graph, step))]
            if names == [(step.schedule, tuple(step.operators)) for step in wanted[at : at + len(names)]]:
                left.append((stretch.end, at + len(names), (*path, stretch)))
    return None


def _stretches(plans: Sequence[FusionPlan]) -> tuple[dict[int, list[_Stretch]], int]:
    """The ways to go on from each place, and the last place. A place is a number with a bit for each value."""
    hidden = made_on_the_way(plans[0].graph)
    bits: dict[str, int] = {}
    for plan in plans:
        for step in plan.steps:
            bits.update({name: bits.get(name, 1 << len(bits)) for name in step.outputs if name not in hidden})
    found: dict[int, list[_Stretch]] = {}
    for number, plan in enumerate(plans):
        place, waiting = 0, list[int]()
        for at, step in enumerate(plan.steps):
            waiting.append(at)
            end = place
            for name in step.nodes if isinstance(step, Kernel) else (step.node,):
                end |= bits.get(name, 0)
            if end != place:
                stretch = _Stretch(number, tuple(waiting), end)
                kernels = [s for s in map(plan.steps.__getitem__, waiting) if isinstance(s, Kernel)]
                left = bool(kernels) and all(
                    in_library(plan.graph.node(name)) for kernel in kernels for name in kernel.nodes
                )
                found.setdefault(place, []).extend((stretch, replace(stretch, library=True)) if left else (stretch,))
                place, waiting = end, []
    return found, sum(bits.values())


def _steps(plans: Sequence[FusionPlan], stretch: _Stretch) -> Iterator[Step]:
    for number in stretch.steps:
        step = plans[stretch.plan].steps[number]
        if isinstance(step, Kernel) and stretch.library:
            yield from map(Library, step.nodes)
        else:
            yield step


def _put_together(plans: Sequence[FusionPlan], path: Sequence[_Stretch]) -> FusionPlan | None:
    """The plan of these stretches; ``None`` where a value that a step reads is not stored by one before."""
    first = plans[0]
    steps = _complete(first, [step for stretch in path for step in _steps(plans, stretch)])
    if steps is None:
        return None
    names: set[str] = set()
    named_apart = [replace(s, name=kernel_name([s.name], names)) if isinstance(s, Kernel) else s for s in steps]
    safe = [_safely(first, named_apart, at) for at in range(len(named_apart))]
    rewrites = [name for _, of in first.data.rewrites for name in of]
    shown = [
        (schedule, list(operators))
        for step in safe
        if (found := _shown(first.graph, step))
        for schedule, operators in (found,)
    ]
    return replace(first, data=Plan.of_mode(shown, rewrites), steps=tuple(safe))


def _complete(plan: FusionPlan, chosen: Sequence[Step]) -> list[Step] | None:
    """The steps with the library's views that they read, each once. ``None`` where a value is missing, or stored
    twice."""
    graph, made = plan.graph, set[str]()
    steps: list[Step] = []

    def views(value: str) -> bool:
        node = graph.producer(value)
        if node is None or value in made:
            return True
        if (
            not (is_view(node) or value in made_on_the_way(graph))
            or node.call is None
            or not all(map(views, node.values))
        ):
            return False
        steps.append(Library(value))
        made.add(value)
        return True

    for step in chosen:
        if isinstance(step, Library) and step.node in made:
            continue
        if not (all(map(views, plan.operands(step))) and made.isdisjoint(step.outputs)):
            return None
        steps.append(step)
        made.update(step.outputs)
    return steps if all(map(views, graph.returns)) else None


def _safely(plan: FusionPlan, steps: Sequence[Step], at: int) -> Step:
    """The step, which writes over a tensor only where that is its own memory, and no later step reads it."""
    step, graph = steps[at], plan.graph
    if not isinstance(step, Kernel) or step.overwrites is None:
        return step
    made = next((s for s in steps if step.overwrites in s.outputs), None)
    fresh = isinstance(made, Kernel) or (made is not None and not _may_be_view(graph, made.node))
    aliases = {step.overwrites}
    for node in graph.nodes:
        if not aliases.isdisjoint(node.values) and (is_view(node) or _may_be_view(graph, node.name)):
            aliases.add(node.name)
    later = {value for s in steps[at + 1 :] for value in plan.operands(s)} | {*graph.returns}
    return step if fresh and aliases.isdisjoint(later) else replace(step, overwrites=None)


def _may_be_view(graph: OpGraph, name: str) -> bool:
    node = graph.node(name)
    return is_view(node) or node.op in _KEPT or (node.op in OPS and OPS[node.op].kind is Kind.IDENTITY)


def _shown(graph: OpGraph, step: Step) -> tuple[str, tuple[str, ...]] | None:
    """The step as a plan's name shows it; ``None`` of one that is not shown."""
    if isinstance(step, Kernel):
        return step.schedule, tuple(step.operators(graph))
    node = graph.node(step.node)
    return None if is_unnamed(node) or step.node in made_on_the_way(graph) else ("", (label(node),))
