"""Networks: the tasks of a design, and which of its options are worth tuning.

likely options of a design -> their steps with a task each (kgen.tuning.tasks) -> times -> options of the fastest
steps
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from kgen.candidate import FEW_KERNELS
from kgen.codegen.registry import templates
from kgen.compiler.fusion.reasons import why_library
from kgen.compiler.fusion.steps import FusionPlan, Kernel, Library, Step
from kgen.compiler.operators.facts import label
from kgen.protocol import Environment
from kgen.store.kernel_task import THE_LIBRARY
from kgen.store.tasks import StoredResult
from kgen.tuning.design import Design
from kgen.tuning.tasks.assembly import Results
from kgen.tuning.tasks.parts import Catalogue, Part
from kgen.tuning.tasks.task import TaskMaker

LIKELY = 2.0  #: times the least predicted time; options of no more are tuned
_MOST_OPTIONS = 8  #: options that are tuned
_LIBRARY_WINS = 1.03  #: times the library's time; a slower kernel is left to it in a further option
_ERRS_MORE = 1.2  #: times the library's error; a kernel that errs more is left to it in another one
_SLOWER, _COARSER = "our kernels of it are slower here", "our kernels of it err more than the library"


def is_network(design: Design) -> bool:
    """Whether a likely plan has so many kernels that whole files are too few tries for them."""
    return any(len(design.choices[n].kernels) > FEW_KERNELS for n in _likely(design))


def catalogue(design: Design, environment: Environment, maker: TaskMaker | None = None) -> Catalogue:
    """The tasks of a design's likely options, and of the control. The design must have a plan with kernels.

    A ``maker`` keeps the tasks for :func:`with_regions`.
    """
    maker, best = maker or TaskMaker(design.hardware, design.accuracy, environment), _best(design)
    assert best is not None, "a design whose tasks are asked for has a plan with kernels"
    likely = _likely(design)
    likely = _unlike_each_other(design, [*dict.fromkeys((best, *_first_of_rewrites(design, likely)))], likely)
    own = frozenset(
        name
        for choice in design.choices
        for _, plan in choice.plans
        for kernel in plan.kernels
        for name in kernel.nodes
    )
    return Catalogue(
        {n: tuple(_parts(design, n, maker, own)) for n in dict.fromkeys((best, *likely, design.control.option))}, best
    )


def _first_of_rewrites(design: Design, options: Sequence[int]) -> list[int]:
    """The first of these options for each set of rewrites: they have other kernels, where cuts of one graph share
    most."""
    first: dict[tuple[tuple[str, ...], ...], int] = {}
    for number in options:
        first.setdefault(tuple(plan.rewrites for _, plan in design.choices[number].plans), number)
    return list(first.values())


def _unlike_each_other(design: Design, first: Sequence[int], likely: Sequence[int]) -> list[int]:
    """The first options, and those that have most steps which the ones before lack: regions are put together from all
    of them."""
    steps = {
        n: Counter((step.schedule, step.operators) for step in design.choices[n].data.steps) for n in (*first, *likely)
    }
    chosen = list(first[:_MOST_OPTIONS])
    while len(chosen) < _MOST_OPTIONS:
        known = {step for n in chosen for step in steps[n]}
        news = {
            n: sum(count for step, count in steps[n].items() if step not in known) for n in likely if n not in chosen
        }
        most = max(news, key=lambda n: news[n], default=None)
        if most is None or not news[most]:
            break
        chosen.append(most)
    return chosen


def _best(design: Design) -> int | None:
    """The option with kernels that is predicted to be fastest."""
    return min(_own(design), key=lambda n: design.options[n].predicted_ms, default=None)


def _likely(design: Design) -> list[int]:
    """The options with kernels whose predicted time is near the least."""
    own = _own(design)
    least = min((design.options[n].predicted_ms for n in own), default=0.0)
    return [n for n in own if design.options[n].predicted_ms <= LIKELY * least]


def _own(design: Design) -> list[int]:
    """The numbers of the options with kernels in their order: those whose main steps an earlier one has come last."""
    return [n for n, option in enumerate(design.options) if option.kernels]


def _parts(design: Design, number: int, maker: TaskMaker, own: frozenset[str]) -> Iterator[Part]:
    """The steps of an option. ``own`` are nodes of which a plan has a kernel."""
    choice, predictor = design.choices[number], design.predictor
    lacking = (template.lacks(design.hardware) for template in templates(design.hardware.device_type).values())
    lacks = next(filter(None, lacking), "")
    kernels = iter(zip(design.options[number].kernels, choice.prefixes))
    for _, plan in choice.plans:
        for predicted in predictor.prediction(plan).steps:
            step, graph = predicted.step, plan.graph
            task, limit = maker.task(plan, step), predictor.step_limit_ms(plan, step)
            if isinstance(step, Kernel):
                space, prefix = next(kernels)
                yield Part(
                    task,
                    prefix.rstrip("."),
                    ", ".join(step.operators(graph)),
                    space,
                    step.schedule,
                    predicted.ms,
                    limit,
                )
            elif task is not None:
                node = graph.node(step.node)
                why = why_library(graph, node, own=node.name in own, lacks=lacks)
                yield Part(task, label(node), label(node), None, "", predicted.ms, limit, why)


def with_regions(design: Design, of: Catalogue, results: Results, maker: TaskMaker) -> Catalogue:
    """The catalogue with further options, which the design gets: the fastest steps of all options of a graph, by
    measurement.

    A second one of a graph leaves kernels out that err more than the library.
    """
    options = dict(of.options)
    groups = dict.fromkeys(tuple(design.regions(n)) for n in of.options if len(design.choices[n].plans) == 1)
    for numbers in filter(None, groups):
        plans = [design.choices[n].plans[0][1] for n in numbers]
        own = frozenset(name for plan in plans for kernel in plan.kernels for name in kernel.nodes)
        for most in (inf, _ERRS_MORE):
            made = design.put_together(numbers, _Costs(design, plans, maker, results, most))
            if made is not None and made not in options:
                options[made] = tuple(_parts(design, made, maker, own))
    return replace(of, options=options)


class _Costs:
    """The milliseconds of the steps of plans of one graph: measured, or predicted for a call of the library.

    They are infinite for kernels that were not measured, or err over ``most`` times as much as the library. Kernels
    that do not stand alone take what is predicted.
    """

    def __init__(
        self, design: Design, plans: Sequence[FusionPlan], maker: TaskMaker, results: Results, most: float
    ) -> None:
        self._plans, self._maker, self._results, self._most = plans, maker, results, most
        self._predicted = [design.predictor.prediction(plan).steps for plan in plans]
        self._known: dict[
            Step, tuple[float, float]
        ] = {}  # by step: layers have steps of their own, and plans share most

    def __call__(self, plan: int, step: int, library: bool) -> float:
        found = self._plans[plan].steps[step]
        if found not in self._known:
            self._known[found] = self._times(self._plans[plan], found, self._predicted[plan][step].ms)
        return self._known[found][library]

    def _times(self, plan: FusionPlan, step: Step, predicted: float) -> tuple[float, float]:
        """The times of the step as it is, and as calls of the library."""
        task = self._maker.task(plan, step)
        found = self._results.get(task.id, {}) if task else {}
        library = found.get(THE_LIBRARY)
        ms = library.ms if library and library.ms is not None else inf
        if isinstance(step, Library):
            return (ms if ms < inf else predicted if task else 0.0), inf
        if task is None:
            return predicted, inf
        right = [r for variant, r in found.items() if variant.schedule and r.ms is not None]
        coarse = (
            library and library.error and min((r.error or 0.0 for r in right), default=0.0) > self._most * library.error
        )
        return (inf if coarse else min((r.ms for r in right), default=inf)), ms


def with_library(design: Design, of: Catalogue, results: Results) -> Catalogue:
    """The catalogue with further options, which the design gets: they leave kernels to the library.

    These are the kernels that are slower than the library by measurement; and beside them those that err more.
    """
    options = dict(of.options)
    for number, parts in [(n, parts) for n, parts in of.options.items() if n < design.fused]:
        kernels = [part for part in parts if part.space is not None]
        slower = {n: _SLOWER for n, part in enumerate(kernels) if _ratio(part, results, _ms) > _LIBRARY_WINS}
        coarser = {n: _COARSER for n, part in enumerate(kernels) if _ratio(part, results, _error) > _ERRS_MORE}
        for left in (slower, {**coarser, **slower}):
            made = design.leave_to_library(number, set(left)) if left else None
            if made is not None and made not in options:
                options[made] = tuple(_with_left(parts, left, design.choices[made].prefixes))
    return replace(of, options=options)


def _with_left(parts: Sequence[Part], left: Mapping[int, str], prefixes: Sequence[str]) -> Iterator[Part]:
    """The steps with some kernels, by number, left to the library, for these reasons. The others have new
    ``prefixes``."""
    number, names = 0, iter(prefixes)
    for part in parts:
        if part.space is None:
            yield part
            continue
        yield part.left(left[number]) if number in left else replace(part, name=next(names).rstrip("."))
        number += 1


def _ratio(part: Part, results: Results, figure: Callable[[StoredResult], float | None]) -> float:
    """A figure of the kernel's fastest variant over the library's; 0 where one is not known."""
    found = results.get(part.task.id, {}) if part.task else {}
    library = found.get(THE_LIBRARY)
    own = min(
        (r for v in part.variants() if (r := found.get(v)) and r.ms is not None),
        key=lambda r: r.ms or 0.0,
        default=None,
    )
    figures = library and figure(library), own and figure(own)
    return figures[1] / figures[0] if all(figures) else 0.0


def _ms(result: StoredResult) -> float | None:
    return result.ms


def _error(result: StoredResult) -> float | None:
    return result.error
