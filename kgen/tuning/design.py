"""Designs: everything that can be rendered for a problem on a device, as options of a search.

    capture -> plans for each mode -> options (pairs of plans where both modes are asked for) -> points -> candidates
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Iterator

from kgen.candidate import Candidate, Params, ParamValue, Rejection
from kgen.compiler.capture import Capture
from kgen.compiler.fusion import MOST_PLANS, FusionPlan, Kernel, plans
from kgen.compiler.graph import OpGraph
from kgen.evaluator.protocol import Accuracy
from kgen.hardware import Hardware
from kgen.problem import Problem
from kgen.templates import Task, families, template_for
from kgen.templates.render import Way, render
from kgen.templates.space import Space
from kgen.tuning.search.points import KernelSpace, Option, Point, distinct_kernels

#: The axis that holds for a whole file: the compiler prefers one vector width.
_FILE_AXIS = "vector_bits"


@dataclass(frozen=True)
class _Kernel:
    """A kernel of a plan: its label, and its space with the combinations that are allowed in it."""

    label: str
    space: Space
    allowed: tuple[Params, ...]


@dataclass(frozen=True)
class _Choice:
    """One plan for each mode, and their kernels in order."""

    plans: tuple[tuple[str, FusionPlan], ...]
    kernels: tuple[_Kernel, ...]

    @property
    def name(self) -> str:
        if len(self.plans) == 1:
            return self.plans[0][1].name
        return " / ".join(f"{mode}: {plan.name}" for mode, plan in self.plans)

    @property
    def spaces(self) -> tuple[Space, ...]:
        return tuple(kernel.space for kernel in self.kernels)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What a candidate's parameters of each kernel begin with."""
        modes = [f"{mode}." if len(self.plans) > 1 else "" for mode, _ in self.plans]
        return tuple(f"{m}k{n}." for m, (_, plan) in zip(modes, self.plans) for n in range(len(plan.kernels)))


class Design:
    """All candidates of one problem on one device, for one class of accuracy."""

    def __init__(
        self, problem: Problem, capture: Capture, hardware: Hardware, accuracy: Accuracy = Accuracy.FP32
    ) -> None:
        self.problem, self.capture, self.hardware, self.accuracy = problem, capture, hardware, accuracy
        self._known_kernels: dict[int, tuple[_Kernel, ...]] = {}

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
        """What the search is given: for each choice of plans, the allowed combinations of every kernel.

        Kernels that do the same in several plans, with the same combinations, are one.
        """
        shared: dict[object, KernelSpace] = {}
        options = []
        for choice in self.choices:
            kernels = []
            for kernel in choice.kernels:
                same = (kernel.label, tuple(tuple(params.items()) for params in kernel.allowed))
                kernels.append(shared.setdefault(same, KernelSpace(kernel.label, kernel.allowed)))
            options.append(Option(choice.name, tuple(kernels), common=_FILE_AXIS))
        return tuple(options)

    @property
    def combinations(self) -> int:
        """Points that can be rendered: the product over the kernels of a plan, summed over the plans."""
        return sum(option.size for option in self.options)

    @property
    def kernel_combinations(self) -> int:
        """Allowed combinations of one kernel's parameters: the sum over the kernels, those of several plans once."""
        return sum(map(len, distinct_kernels(self.options)))

    def rejections(self) -> list[Rejection]:
        """Every plan that the device cannot run, and every combination of one kernel's parameters that a constraint
        rules out: of a kernel that several plans have, once, with the first of them."""
        found = self._out_of_reach()
        seen: set[KernelSpace] = set()
        for choice, option in zip(self.choices, self.options):
            for space, kernel, prefix in zip(choice.spaces, option.kernels, choice.prefixes):
                if kernel not in seen:
                    seen.add(kernel)
                    found += _ruled_out(choice.name, space, prefix)
        return found

    def point(self, plan: str, params: Params) -> Point | None:
        """The point of a candidate's plan and parameters, where this design has it."""
        number = self._numbers.get(plan)
        if number is None:
            return None
        choice: list[int] = []
        for kernel, prefix in zip(self.options[number].kernels, self.choices[number].prefixes):
            wanted = {k.removeprefix(prefix): v for k, v in params.items() if k.startswith(prefix)}
            if wanted not in kernel:
                return None
            choice.append(kernel.index(wanted))
        return Point(number, tuple(choice))

    def candidate(self, point: Point) -> Candidate:
        """The rendered candidate of a point."""
        choice, option = self.choices[point.option], self.options[point.option]
        rest = zip(option.kernels, point.choice)
        ways = []
        for mode, plan in choice.plans:
            params: dict[str, ParamValue] = {}
            for number, (kernel, index) in enumerate(islice(rest, len(plan.kernels))):
                params |= {f"k{number}.{name}": value for name, value in kernel[index].items()}
            ways.append(Way(mode, plan, params))
        return render(self.problem, ways, self.hardware, both_modes=self.capture.same)

    def renders(self, plan: str, params: Params, source: str) -> bool:
        """Whether that plan with these parameters renders to ``source``, byte for byte."""
        point = self.point(plan, params)
        return point is not None and self.candidate(point).source == source

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The options' numbers by their names."""
        return {option.name: number for number, option in enumerate(self.options)}

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
        return _Choice(chosen, tuple(kernel for _, plan in chosen for kernel in self._kernels(plan)))

    def _kernels(self, plan: FusionPlan) -> tuple[_Kernel, ...]:
        """The plan's kernels; made once for a plan that stands in several pairs."""
        if id(plan) not in self._known_kernels:
            self._known_kernels[id(plan)] = tuple(self._kernel(plan, kernel) for kernel in plan.kernels)
        return self._known_kernels[id(plan)]

    def _kernel(self, plan: FusionPlan, kernel: Kernel) -> _Kernel:
        task = Task(plan, kernel, self.hardware, self.accuracy)
        space = template_for(task).space(task)
        return _Kernel(kernel.label(plan.graph), space, tuple(space.allowed()))


def _ruled_out(plan: str, space: Space, prefix: str) -> Iterator[Rejection]:
    """The combinations of one kernel that a constraint rules out, their parameters named as a candidate's are."""
    for params in space.combinations():
        broken = space.broken(params)
        if broken is not None:
            yield Rejection(plan, {f"{prefix}{k}": v for k, v in params.items()}, broken.name, broken.reason)
