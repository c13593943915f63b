"""Designs: everything that can be rendered for a problem on a device, as options of a search.

    capture -> plans for each mode -> options (pairs of plans where both modes are asked for) -> points -> candidates
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property

from kgen.candidate import Candidate, Params, Rejection
from kgen.evaluator.protocol import Accuracy
from kgen.fusion import MOST_PLANS, FusionPlan, plans
from kgen.graph import Capture, OpGraph
from kgen.hardware import Hardware
from kgen.problem import Problem
from kgen.render import Way, render
from kgen.search import Option, Point
from kgen.space import Space
from kgen.templates import Task, families, template_for

#: The axis that holds for a whole file: the compiler prefers one vector width.
_FILE_AXIS = "vector_bits"


@dataclass(frozen=True)
class _Choice:
    """One plan for each mode, and the space of each of their kernels in order."""

    plans: tuple[tuple[str, FusionPlan], ...]
    spaces: tuple[Space, ...]

    @property
    def name(self) -> str:
        if len(self.plans) == 1:
            return self.plans[0][1].name
        return " / ".join(f"{mode}: {plan.name}" for mode, plan in self.plans)


class Design:
    """All candidates of one problem on one device, for one class of accuracy."""

    def __init__(
        self, problem: Problem, capture: Capture, hardware: Hardware, accuracy: Accuracy = Accuracy.FP32
    ) -> None:
        self.problem, self.capture, self.hardware, self.accuracy = problem, capture, hardware, accuracy

    @cached_property
    def choices(self) -> tuple[_Choice, ...]:
        graphs = self.capture.graphs
        if len(graphs) == 1 or self.capture.same:
            return tuple(self._choice(((graphs[0][0], plan),)) for plan in self._plans(graphs[0][1]))
        (first, a), (second, b) = graphs
        pairs = itertools.product(enumerate(self._plans(a)), enumerate(self._plans(b)))
        ordered = sorted(pairs, key=lambda pair: (pair[0][0] + pair[1][0], pair[0][0]))
        picked = [*ordered[: MOST_PLANS - 1], ordered[-1]]
        return tuple(self._choice(((first, x[1]), (second, y[1]))) for x, y in picked)

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """What the search is given: for each choice of plans, the allowed combinations of every kernel."""
        return tuple(
            Option(choice.name, tuple(tuple(space.allowed()) for space in choice.spaces)) for choice in self.choices
        )

    @property
    def combinations(self) -> int:
        """Points that can be rendered."""
        return sum(option.size for option in self.options)

    def rejections(self) -> list[Rejection]:
        """Every plan that the device cannot run, and every combination of one kernel's parameters that a constraint
        rules out, each once for its plan."""
        found = self._out_of_reach()
        for choice in self.choices:
            for number, space in enumerate(choice.spaces):
                for params in space.combinations():
                    broken = space.broken(params)
                    if broken is not None:
                        lifted = {f"k{number}.{k}": v for k, v in params.items()}
                        found.append(Rejection(choice.name, lifted, broken.name, broken.reason))
        return found

    def candidate(self, point: Point) -> Candidate:
        """The rendered candidate of a point."""
        choice, option = self.choices[point.option], self.options[point.option]
        picked = [dict(combinations[i]) for combinations, i in zip(option.kernels, point.choice)]
        widths = [p[_FILE_AXIS] for p in picked if _FILE_AXIS in p]
        for params in picked:
            if _FILE_AXIS in params:
                params[_FILE_AXIS] = widths[0]
        ways, rest = [], iter(picked)
        for mode, plan in choice.plans:
            params: dict[str, Params] = {}
            for number in range(len(plan.kernels)):
                params |= {f"k{number}.{name}": value for name, value in next(rest).items()}
            ways.append(Way(mode, plan, params))
        return render(self.problem, ways, self.hardware, both_modes=self.capture.same)

    def _plans(self, graph: OpGraph) -> tuple[FusionPlan, ...]:
        """The plans whose families the device has."""
        return plans(graph, frozenset(f for f, lacks in families(self.hardware).items() if not lacks))

    def _out_of_reach(self) -> list[Rejection]:
        """The plans with families that other devices of its kind have."""
        every, missing = families(self.hardware), {f: lacks for f, lacks in families(self.hardware).items() if lacks}
        found = {}
        for _, graph in self.capture.graphs if missing else ():
            for plan in plans(graph, frozenset(every)):
                for family in {k.family for k in plan.kernels} & set(missing):
                    found[plan.name] = Rejection(plan.name, {}, "device", missing[family])
        return list(found.values())

    def _choice(self, chosen: tuple[tuple[str, FusionPlan], ...]) -> _Choice:
        spaces = []
        for _, plan in chosen:
            for kernel in plan.kernels:
                task = Task(plan, kernel, self.hardware, self.accuracy)
                spaces.append(template_for(task).space(task))
        return _Choice(chosen, tuple(spaces))
