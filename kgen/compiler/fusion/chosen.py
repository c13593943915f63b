"""A plan whose kernels somebody else has chosen, by the names of a graph's operators.

    chosen(graph, templates, Cut((("linear", "relu"), ("softmax",))))

Fusion proposes few of all cuts. This takes any, and says what is wrong with one that makes no plan.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Mapping, Sequence

from kgen.candidate import Plan
from kgen.compiler.fusion.cutter import Cutter
from kgen.compiler.fusion.fusion import rewritten
from kgen.compiler.fusion.programs import Programs
from kgen.compiler.fusion.steps import FusionPlan, Kernel, Step, plan_of
from kgen.compiler.fusion.template import Template, suits
from kgen.compiler.fusion.values import made_on_the_way, roots
from kgen.compiler.graph.graph import Node, OpGraph
from kgen.compiler.operators.facts import label
from kgen.compiler.operators.forms import FormError, formed
from kgen.compiler.rewrites.table import Variant


@dataclass(frozen=True)
class Cut:
    """The operators of each kernel, by their names in a rewritten graph. All others are library calls.

    ``schedules`` names a schedule for each kernel; an empty name stands for the first one that takes it. ``rewrites``
    names the rewrites of the graph, as a plan shows them. ``expressions`` has other forms of pointwise operators, by
    their names.
    """

    kernels: tuple[tuple[str, ...], ...]
    schedules: tuple[str, ...] = ()
    rewrites: tuple[str, ...] = ()
    expressions: tuple[tuple[str, str], ...] = ()


class CutError(ValueError):
    """A cut makes no plan. The message says why, in one line."""


def chosen(graph: OpGraph, templates: Sequence[Template], cut: Cut) -> FusionPlan:
    """The plan of a cut. Raises :class:`CutError`."""
    variant = _variant(rewritten(graph, templates), cut.rewrites)
    variant = replace(variant, graph=_formed(variant.graph, cut))
    cutter = Cutter(variant, tuple(templates), {}, set(), Programs(variant.graph))
    pieces = pieces_of(cutter, cut)
    fusable = frozenset(name for piece in pieces if not isinstance(piece, Node) for name in (n.name for n in piece))
    missing: set[str] = set()
    steps = cutter.steps(fusable, pieces, missing)
    if steps is None:
        raise CutError(
            f"{', '.join(sorted(missing))}: a value that others read, and that its kernel does not store and none "
            "computes again"
        )
    return plan_of(variant, _scheduled(cutter, steps, cut, {t.name: t for t in templates}), cutter.programs)


def planned_again(graph: OpGraph, templates: Sequence[Template], data: Plan) -> FusionPlan | None:
    """The plan of one mode that was stored as ``data``; ``None`` where kernels of these operators make no plan, or
    another one.

    A stored plan names operators by their labels. Operators of one label are taken in the order of the graph.
    """
    for variant in rewritten(graph, templates):
        if data.rewrites != (("", variant.shown),):
            continue
        cutter = Cutter(variant, tuple(templates), {}, set(), Programs(variant.graph))
        kernels = _kernels_of(cutter, data)
        if kernels is None:
            continue
        schedules = tuple(step.schedule for step in data.steps if step.schedule)
        try:
            found = chosen(graph, templates, Cut(kernels, schedules, variant.rewrites))
        except CutError:
            continue
        if found.data == data:
            return found
    return None


def _kernels_of(cutter: Cutter, data: Plan) -> tuple[tuple[str, ...], ...] | None:
    """The operators of each kernel of a stored plan, with the views between them; ``None`` where the graph has other
    operators."""
    graph, on_the_way = cutter.graph, made_on_the_way(cutter.graph)
    nodes = [n for n in graph.nodes if n.name not in on_the_way]
    left: dict[str, list[str]] = {}
    for node in reversed(nodes):
        left.setdefault(label(node), []).append(node.name)
    kernel_of: dict[str, int] = {}  # -1 is the library
    numbers = itertools.count()
    for step in data.steps:
        number = next(numbers) if step.schedule else -1
        for operator in step.operators:
            if not left.get(operator):
                return None
            kernel_of[left[operator].pop()] = number
    for node in nodes:
        around = {kernel_of.get(name, -1) for name in (*node.values, *(user.name for user in graph.users(node.name)))}
        if node.name not in kernel_of and len(around) == 1:
            kernel_of[node.name] = around.pop()
    return tuple(
        tuple(name for name, number in kernel_of.items() if number == kernel) for kernel in range(next(numbers))
    )


def _variant(variants: Sequence[Variant], rewrites: Sequence[str]) -> Variant:
    found = next((v for v in variants if set(v.rewrites) == set(rewrites)), None)
    if found is None:
        known = "; ".join(", ".join(v.rewrites) or "none" for v in variants)
        raise CutError(f"no graph has the rewrites {', '.join(rewrites) or 'none'}: there are: {known}")
    return found


def _formed(graph: OpGraph, cut: Cut) -> OpGraph:
    """The graph with other forms of its operators' expressions."""
    forms, own = dict(cut.expressions), {name for names in cut.kernels for name in names}
    if left := sorted(forms.keys() - own):
        raise CutError(f"{left[0][:60]!r} has an expression, and is in no kernel")
    try:
        return (
            replace(graph, nodes=tuple(formed(n, forms[n.name]) if n.name in forms else n for n in graph.nodes))
            if forms
            else graph
        )
    except FormError as error:
        raise CutError(str(error)) from error


def pieces_of(cutter: Cutter, cut: Cut) -> list[tuple[Node, ...] | Node]:
    """The kernels' nodes and the library's, each behind those whose values it reads."""
    nodes = [n for n in cutter.graph.nodes if n.name not in cutter.free]
    piece_of = _numbered(cutter, cut)
    members: dict[object, list[Node]] = {}
    for node in nodes:
        members.setdefault(piece_of.get(node.name, node.name), []).append(node)
    for number in range(len(cut.kernels)):
        if not cutter.takes(members[number]):
            raise CutError(
                f"kernel {number}: no schedule computes {', '.join(n.name for n in members[number])} in one kernel"
            )
    for name, (node, *_) in members.items():
        if isinstance(name, str) and node.call is None:
            raise CutError(f"{name}: the library has no call for it, so that a kernel has to compute it")
    before = _before(cutter, nodes, piece_of)
    ordered: list[tuple[Node, ...] | Node] = []
    while members:
        ready = next((piece for piece in members if not before[piece] & members.keys()), None)
        if ready is None:
            waiting = sorted(str(piece) for piece in members if isinstance(piece, int))
            raise CutError(f"kernels {', '.join(waiting)} wait for values of each other")
        found = members.pop(ready)
        ordered.append(found[0] if isinstance(ready, str) else tuple(found))
    return ordered


def _numbered(cutter: Cutter, cut: Cut) -> Mapping[str, int]:
    """The number of each operator's kernel. Values that are made on the way belong to none."""
    found: dict[str, int] = {}
    known = {n.name for n in cutter.graph.nodes}
    for number, names in enumerate(cut.kernels):
        for name in names:
            if name not in known:
                raise CutError(
                    f"{name[:60]!r} is no operator of this graph: there are "
                    f"{', '.join(n.name for n in cutter.graph.nodes if n.name not in cutter.free)}"
                )
            if name in found:
                raise CutError(f"{name} is in two kernels")
            if name not in cutter.free:
                found[name] = number
        if number not in found.values():
            raise CutError(f"kernel {number} has no operator of its own")
    return found


def _before(cutter: Cutter, nodes: Sequence[Node], piece_of: Mapping[str, int]) -> dict[object, set[object]]:
    """The pieces that each piece waits for: for their values, or since an effect keeps its place."""
    graph, names = cutter.graph, {n.name for n in nodes}
    read = {n.name: {root for v in n.values for root in roots(graph, cutter.free, v)} for n in nodes}
    touching = [n.name for n in nodes if n.effect or graph.changed & read[n.name]]
    pairs = [(name, value) for name, values in read.items() for value in values & names] + list(
        zip(touching[1:], touching)
    )
    found: dict[object, set[object]] = {piece_of.get(n.name, n.name): set() for n in nodes}
    for name, value in pairs:
        mine, other = piece_of.get(name, name), piece_of.get(value, value)
        if mine != other:
            found[mine].add(other)
    return found


def _scheduled(cutter: Cutter, steps: Sequence[Step], cut: Cut, templates: Mapping[str, Template]) -> tuple[Step, ...]:
    """The steps, with the schedules that were asked for."""
    wanted = {name: schedule for names, schedule in zip(cut.kernels, cut.schedules) for name in names if schedule}
    found: list[Step] = []
    for step in steps:
        asked = {wanted[name] for name in step.nodes if name in wanted} if isinstance(step, Kernel) else set()
        for schedule in asked - {getattr(step, "schedule", "")}:
            assert isinstance(step, Kernel)
            template, program = templates.get(schedule), cutter.lowered(step.nodes, step.outputs)
            if template is None:
                raise CutError(f"there is no schedule {schedule[:60]!r}: there are {', '.join(templates)}")
            if program is None or not suits(template, cutter.graph, program):
                raise CutError(
                    f"the schedule {schedule} does not compute {', '.join(step.nodes)}; {step.schedule} does"
                )
            step = replace(step, schedule=schedule, overwrites=step.overwrites if template.in_place else None)
        found.append(step)
    return tuple(found)
