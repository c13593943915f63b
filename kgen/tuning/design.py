"""Designs: all candidates that can be rendered for a problem on a device, as options of a search.

capture -> plans for each mode -> options (pairs of plans where both modes are asked for) -> points -> candidates
"""

from __future__ import annotations

import contextlib
import io
import itertools
import logging
import sys
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Iterable, Iterator, Sequence

from kgen.candidate import CALL, COUNTABLE, LAUNCHING, WAYS, Candidate, Params, ParamValue, Plan, Rejection
from kgen.codegen.registry import templates
from kgen.codegen.render import Way, has_entry, render
from kgen.codegen.space import Space
from kgen.codegen.target import target
from kgen.codegen.template import Template, tasks
from kgen.compiler.capture.capture import Capture, capture
from kgen.compiler.capture.recordable import obstacle
from kgen.compiler.fusion.chosen import planned_again
from kgen.compiler.fusion.fusion import plans
from kgen.compiler.fusion.steps import FusionPlan
from kgen.compiler.graph.graph import OpGraph
from kgen.devices.hardware import Hardware
from kgen.devices.kinds import HOST, KINDS, torch_device
from kgen.errors import InputError, RenderError
from kgen.problems.problem import LoadedProblem, Problem
from kgen.protocol import Accuracy
from kgen.tuning.plan_kernels import PlanKernel, PlanKernels
from kgen.tuning.prediction import WORTH, Predictor, in_order
from kgen.tuning.search.points import KernelSpace, Option, Point, distinct_kernels
from kgen.tuning.tasks import regions
from kgen.tuning.tasks.left import left_kernels, left_to_library

_MOST_FRAMES = 20_000  # calls within each other; chains of operators in a graph are followed by recursion


@dataclass(frozen=True)
class _Choice:
    """One plan for each mode, and the kernels of all of them in order."""

    plans: tuple[tuple[str, FusionPlan], ...]
    kernels: tuple[PlanKernel, ...]

    @cached_property
    def data(self) -> Plan:
        return Plan.of_modes([(mode, plan.data) for mode, plan in self.plans])

    @cached_property
    def name(self) -> str:
        return self.data.name

    @property
    def spaces(self) -> tuple[Space, ...]:
        return tuple(kernel.space for kernel in self.kernels)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """For each kernel, the prefix of its parameters in a candidate."""
        return tuple(f"{step.kernel}." for step in self.data.steps if step.schedule)

    def predicted_ms(self, predictor: Predictor) -> float:
        """Milliseconds; the sum over the modes."""
        return sum(predictor.ms(plan) for _, plan in self.plans)


def named(prefixes: Sequence[str], chosen: Iterable[Params]) -> dict[str, ParamValue]:
    """The parameters of a plan's kernels, as a candidate names them."""
    return {f"{prefix}{name}": value for prefix, params in zip(prefixes, chosen) for name, value in params.items()}


class Design:
    """All candidates of one problem on one device, for one class of accuracy.

    Plans come in the order of their predicted times. The control comes before the plans that are predicted to be
    slower.
    """

    def __init__(
        self, problem: Problem, capture: Capture, hardware: Hardware, accuracy: Accuracy = Accuracy.FP32
    ) -> None:
        self.problem, self.capture, self.hardware, self.accuracy = problem, capture, hardware, accuracy
        self.predictor = Predictor(hardware, accuracy)
        self.kernels = PlanKernels(hardware, accuracy)
        self._more = 0  # options that are put together from others

    @cached_property
    def choices(self) -> tuple[_Choice, ...]:
        graphs = self.capture.graphs
        if len(graphs) == 1 or self.capture.same:
            return tuple(self._choice(((graphs[0][0], plan),)) for plan in self._plans(graphs[0][1]))
        (first, a), (second, b) = graphs
        pairs = list(itertools.product(self._plans(a), self._plans(b)))
        control = next(pair for pair in pairs if pair[0].control and pair[1].control)
        others = [pair for pair in pairs if pair is not control]
        ordered = in_order(others, control, lambda pair: sum(map(self.predictor.ms, pair)))
        return tuple(self._choice(((first, x), (second, y))) for x, y in ordered)

    @cached_property
    def options(self) -> tuple[Option, ...]:
        """The options of a search: for each choice of plans, the allowed combinations of every kernel.

        Kernels with the same label and the same combinations are one :class:`KernelSpace` in all plans.
        """
        return tuple(map(self._option, self.choices))

    def _option(self, choice: _Choice) -> Option:
        return Option(
            choice.name,
            tuple(map(self.kernels.space, choice.kernels)),
            target(self.hardware.device_type).shared_axis,
            choice.predicted_ms(self.predictor),
            frozenset(rewrite for _, plan in choice.plans for rewrite in plan.rewrites),
        )

    def leave_to_library(self, number: int, kernels: AbstractSet[int]) -> int | None:
        """The number of the option that is like another one, but leaves some of its kernels to the library.

        It is added behind the others where it is new. ``None`` where the library does not compute them, or no kernel
        stays.
        """
        plans, first = [], 0
        for mode, plan in self.choices[number].plans:
            own = {n - first for n in kernels if first <= n < first + len(plan.kernels)}
            left = left_to_library(plan, own) if own else plan
            if left is None:
                return None
            plans.append((mode, left))
            first += len(plan.kernels)
        return self.add(tuple(plans)) if any(plan.kernels for _, plan in plans) else None

    def add(self, plans: tuple[tuple[str, FusionPlan], ...]) -> int:
        """The number of the option of these plans, one for each mode; it is added behind the others where it is new."""
        name = _Choice(plans, ()).name
        if name not in self._numbers:
            choice = self._choice(plans)
            self._more += 1
            self.choices, self.options = (*self.choices, choice), (*self.options, self._option(choice))
            del self._numbers
        return self._numbers[name]

    def regions(self, number: int) -> list[int]:
        """The numbers of the options whose plans have the graph of this one's. It has one mode, and fusion has made all
        of them."""
        plans = [choice.plans for choice in self.choices]
        return [
            n for n in range(self.fused) if len(plans[n]) == 1 and plans[n][0][1].graph is plans[number][0][1].graph
        ]

    def put_together(self, numbers: Sequence[int], cost: regions.Cost) -> int | None:
        """The number of the option of the fastest steps of other ones of a graph, as :meth:`regions` has them.

        It is added behind the others where it is new. ``None`` where it is one of them.
        """
        ((mode, _),) = self.choices[numbers[0]].plans
        plan = regions.fastest([self.choices[n].plans[0][1] for n in numbers], cost)
        return self.add(((mode, plan),)) if plan and plan.kernels else None

    @property
    def fused(self) -> int:
        """How many of the options come from fusion; those behind them are put together from these."""
        return len(self.choices) - self._more

    @cached_property
    def promising(self) -> bool:
        """Whether a plan is predicted to beat the control."""
        times = [choice.predicted_ms(self.predictor) for choice in self.choices]
        controls = [all(plan.control for _, plan in choice.plans) for choice in self.choices]
        return min(times) < WORTH * times[controls.index(True)]

    @property
    def control(self) -> Point:
        """The point that leaves everything to the library."""
        whole = [all(plan.control for _, plan in choice.plans) for choice in self.choices]
        return Point(whole.index(True), ())

    @property
    def combinations(self) -> int:
        """The number of points: the product over the kernels of a plan, summed over the plans; at most what is
        countable."""
        return min(sum(option.size for option in self.options), COUNTABLE)

    @property
    def kernel_combinations(self) -> int:
        """The number of allowed combinations, summed over the kernels; a kernel of several plans counts once."""
        return sum(map(len, distinct_kernels(self.options)))

    def rejections(self) -> list[Rejection]:
        """Every plan that the device cannot run, and every combination of a kernel that a constraint rules out.

        A kernel of several plans is listed once, under the first of them.
        """
        found = _out_of_reach(self.capture, self.hardware)
        seen: set[KernelSpace] = set()
        for choice, option in zip(self.choices, self.options):
            for space, kernel, prefix in zip(choice.spaces, option.kernels, choice.prefixes):
                if kernel not in seen:
                    seen.add(kernel)
                    found += _ruled_out(choice, space, prefix)
        return found

    def point(self, plan: str, params: Params) -> Point | None:
        """The point of a candidate's plan and parameters; ``None`` where this design does not have it.

        A parameter that a kernel has had since has its plainest value: older results stay of use.
        """
        number = self._numbers.get(plan)
        if number is None:
            return None
        choice: list[int] = []
        for kernel, prefix in zip(self.options[number].kernels, self.choices[number].prefixes):
            wanted = {k.removeprefix(prefix): v for k, v in params.items() if k.startswith(prefix)}
            index = kernel.index(wanted) if wanted in kernel else _plainest_with(kernel, wanted)
            if index is None:
                return None
            choice.append(index)
        point = Point(number, tuple(choice), str(params.get(LAUNCHING, "")))
        return None if point.launching and self.obstacle(point) else point

    def candidate(self, point: Point) -> Candidate:
        """Render the candidate of ``point``. Raises :class:`RenderError` where that fails, which is a bug of kgen."""
        try:
            return self._rendered(point)
        except InputError:
            raise
        except Exception as error:
            raise RenderError(f"rendering failed: {type(error).__name__}: {error}") from error

    def rejection(self, point: Point, error: RenderError) -> Rejection:
        """The rejection of a point that failed to render."""
        choice, option = self.choices[point.option], self.options[point.option]
        chosen = [kernel[index] for kernel, index in zip(option.kernels, point.choice)]
        return Rejection(choice.name, named(choice.prefixes, chosen), "rendering", str(error))

    def _rendered(self, point: Point) -> Candidate:
        return render(
            self.problem, self._ways(point), self.hardware, both_modes=self.capture.same, launching=point.launching
        )

    def _ways(self, point: Point) -> list[Way]:
        choice, option = self.choices[point.option], self.options[point.option]
        rest = zip(option.kernels, point.choice)
        ways = []
        for mode, plan in choice.plans:
            params = [kernel[index] for kernel, index in islice(rest, len(plan.kernels))]
            prefix = f"{mode}_" if len(choice.plans) > 1 else ""
            ways.append(Way(mode, plan, tuple(zip(tasks(plan, self.hardware, self.accuracy, prefix), params))))
        return ways

    def obstacle(self, point: Point) -> str | None:
        """Why the forward of a point cannot be launched in the point's way, in one line; ``None`` where it can."""
        if point.launching not in WAYS:
            return f"there are only {' and '.join(WAYS)}"
        if not KINDS[self.hardware.device_type].accelerator:
            return f"{self.hardware.device_type} has no CUDA graphs and no such calls"
        if point.launching == CALL:
            found = has_entry(self.problem, self._ways(point), self.hardware, both_modes=self.capture.same)
            return None if found else "forward is not one run of kernels"
        plans = self.choices[point.option].plans
        if len(plans) > 1:
            return "the file has two modes"
        if not self.options[point.option].kernels:
            return "the plan has no kernel"
        return obstacle(plans[0][1].graph)

    def renders(self, plan: Plan, params: Params, source: str) -> bool:
        """Whether that plan with these parameters renders to ``source``, byte for byte."""
        name = plan.name
        if name not in self._numbers:
            self._find(plan)
        point = self.point(name, params)
        try:
            return point is not None and self.candidate(point).source == source
        except RenderError:
            return False

    def _find(self, plan: Plan) -> None:
        """Add the option of a plan that leaves kernels of another one to the library, is put together from several, or
        has others."""
        for number in range(self.fused):
            choice, numbers = self.choices[number], self.regions(number)
            if choice.data.rewrites == plan.rewrites and numbers[:1] == [number]:
                found = regions.named([self.choices[n].plans[0][1] for n in numbers], plan.steps)
                if found is not None and found.kernels:
                    self.add(((choice.plans[0][0], found),))
                    return
        for number, choice in enumerate(self.choices):
            left = left_kernels(choice.data.steps, plan.steps) if choice.data.rewrites == plan.rewrites else None
            if left and (found := self.leave_to_library(number, left)) is not None and self.choices[found].data == plan:
                return

        if len(self.choices[0].plans) == 1:  # kernels that a proposer has chosen
            mode, graph = self.capture.graphs[0]
            if (chosen := planned_again(graph, usable(self.hardware), plan)) is not None and chosen.kernels:
                self.add(((mode, chosen),))

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The index of each option by its name."""
        return {option.name: number for number, option in enumerate(self.options)}

    def _plans(self, graph: OpGraph) -> tuple[FusionPlan, ...]:
        """The plans whose kernels the device can run, in the order to try them."""
        return plans(graph, usable(self.hardware), self.predictor.order)

    def _choice(self, chosen: tuple[tuple[str, FusionPlan], ...]) -> _Choice:
        return _Choice(chosen, tuple(kernel for _, plan in chosen for kernel in self.kernels.of(plan)))


def without_weight_copies(design: Design) -> Design:
    """The design whose candidates keep no weight in another form beside it."""
    return Design(design.problem, design.capture.without_weight_copies(), design.hardware, design.accuracy)


def usable(hardware: Hardware) -> list[Template]:
    """The templates for this kind of device that it can run."""
    return [template for template in templates(hardware.device_type).values() if not template.lacks(hardware)]


def _out_of_reach(capture: Capture, hardware: Hardware) -> list[Rejection]:
    """The plans with kernels that only other devices of its kind can run."""
    every = tuple(templates(hardware.device_type).values())
    missing = {t.name: t.lacks(hardware) for t in every if t.lacks(hardware)}
    found = {}
    for _, graph in capture.graphs if missing else ():
        for plan in plans(graph, every):
            for schedule in {k.schedule for k in plan.kernels} & set(missing):
                found[plan.name] = Rejection(plan.name, {}, "device", missing[schedule])
    return list(found.values())


def _plainest_with(kernel: KernelSpace, params: Params) -> int | None:
    """The first combination with these parameters among others; ``None`` where there is none, or no parameter."""
    found = (n for n in range(len(kernel)) if params.items() <= kernel[n].items())
    return next(found, None) if params else None


def captured(loaded: LoadedProblem, device_type: str = HOST.name) -> Capture:
    """The problem's graphs on a kind of device.

    Output and logs of torch's export and of forward are dropped: an error says enough, and forward runs on no values.
    """
    allow_long_chains()
    logged = logging.root.manager.disable
    logging.disable()
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            return capture(loaded, torch_device(device_type))
    finally:
        logging.disable(logged)


def allow_long_chains() -> None:
    """Have Python follow chains of operators in a graph by recursion, to capture it and to plan it."""
    sys.setrecursionlimit(max(sys.getrecursionlimit(), _MOST_FRAMES))


def _ruled_out(choice: _Choice, space: Space, prefix: str) -> Iterator[Rejection]:
    """The combinations of one kernel that a constraint rules out; parameters are named as in a candidate."""
    for params, broken in space.ruled_out():
        named = {f"{prefix}{k}": v for k, v in params.items()}
        read = ", ".join(name for name in broken.reads if name in params)
        yield Rejection(choice.name, named, broken.name, f"{broken.reason} ({read})")
