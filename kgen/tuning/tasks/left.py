"""Plans that leave some of their kernels to the library.

SCHEDULE[linear, gelu] + SCHEDULE[linear, add]      a plan
linear(library) + gelu(library) + SCHEDULE[linear, add]      the same with its first kernel left to the library
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set as AbstractSet
from dataclasses import replace

from kgen.candidate import Plan, PlanStep
from kgen.compiler.fusion.steps import FusionPlan, Kernel, Library, Step
from kgen.compiler.fusion.values import made_on_the_way
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.operators.facts import is_unnamed, is_view, label
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS

_KEPT = frozenset(("copy", "cast"))  #: operators of the library whose result may be the operand itself


def left_to_library(plan: FusionPlan, kernels: AbstractSet[int]) -> FusionPlan | None:
    """The plan with these kernels, by number, as library calls. ``None`` where the library does not compute one of
    them."""
    graph, own = plan.graph, plan.kernels
    left = {own[number].name: [graph.node(name) for name in own[number].nodes] for number in kernels}
    if any(not in_library(node) for nodes in left.values() for node in nodes):
        return None
    touched = {value for nodes in left.values() for node in nodes for value in (node.name, *node.values)}
    stored = {output for kernel in own if kernel.name not in left for output in kernel.outputs}
    if any(node.name in stored for nodes in left.values() for node in nodes):
        return None  # another kernel computes the value, too, and stores it
    steps: list[Step] = []
    made: set[str] = set()
    for step in plan.steps:
        if isinstance(step, Kernel) and step.name not in left:
            aliases = _aliases(graph, step.overwrites) if step.overwrites else set()
            steps.append(step if aliases.isdisjoint(touched) else replace(step, overwrites=None))
            continue
        for node in left[step.name] if isinstance(step, Kernel) else [graph.node(step.node)]:
            if node.name not in made:
                made.add(node.name)
                steps.append(Library(node.name))
    return replace(plan, data=_data(plan, steps), steps=tuple(steps))


def left_kernels(steps: Sequence[PlanStep], wanted: Sequence[PlanStep]) -> frozenset[int] | None:
    """The kernels of a plan with these steps that a wanted plan leaves to the library; ``None`` where it is another
    plan."""
    found: set[int] = set()
    rest, number = list(wanted), 0
    for step in steps:
        same = bool(rest) and (rest[0].mode, rest[0].schedule, rest[0].operators) == (
            step.mode,
            step.schedule,
            step.operators,
        )
        if same:
            rest.pop(0)
        elif step.schedule:
            found.add(number)
            for operator in step.operators:
                if rest and not rest[0].schedule and rest[0].operators == (operator,):
                    rest.pop(0)
        else:
            return None
        number += bool(step.schedule)
    return frozenset(found) if found and not rest else None


def in_library(node: Node) -> bool:
    """Whether the library computes the node, with nothing that it changes."""
    return node.call is not None and not node.effect and (node.op not in OPS or OPS[node.op].kind is not Kind.MOMENTS)


def _aliases(graph: OpGraph, tensor: str) -> set[str]:
    """The tensor, and the values that may share its memory where the library computes them."""
    found = {tensor}
    for node in graph.nodes:
        if not found.isdisjoint(node.values) and (is_view(node) or node.op in _KEPT):
            found.add(node.name)
    return found


def _data(plan: FusionPlan, steps: Sequence[Step]) -> Plan:
    """The steps that the plan's name shows."""
    rewrites = [name for _, names in plan.data.rewrites for name in names]
    return Plan.of_mode(_shown(plan.graph, steps), rewrites)


def _shown(graph: OpGraph, steps: Sequence[Step]) -> Iterator[tuple[str, list[str]]]:
    hidden = made_on_the_way(graph)
    for step in steps:
        if isinstance(step, Kernel):
            yield step.schedule, step.operators(graph)
        elif not is_unnamed(graph.node(step.node)) and step.node not in hidden:
            yield "", [label(graph.node(step.node))]
