"""From the results of tasks to the times of options, and back from a point to the results that chose it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from kgen.store.kernel_task import THE_LIBRARY, Variant
from kgen.store.tasks import Step, StoredResult
from kgen.tuning.search import Point
from kgen.tuning.search.assembled import KernelTimes, OptionTimes
from kgen.tuning.tasks.parts import Catalogue, Part

#: The results of each task, by variant.
Results = Mapping[str, Mapping[Variant, StoredResult]]

_SIMPLER = 1e-6  #: part of a predicted time; tells combinations apart of which none was measured


def option_times(catalogue: Catalogue, results: Results) -> dict[int, OptionTimes]:
    """The times of the options: measured where a variant was right, else predicted."""
    return {number: _times(parts, results) for number, parts in catalogue.options.items()}


def steps(catalogue: Catalogue, results: Results, point: Point) -> list[Step]:
    """The steps of a point that are tasks, each with the result by which its variant was chosen."""
    found, choice = [], iter(point.choice)
    for part in catalogue.options.get(point.option, ()):
        variant = THE_LIBRARY if part.space is None else Variant.of(part.schedule, part.space[next(choice)])
        if part.task is not None:
            result = results.get(part.task.id, {}).get(variant)
            found.append(Step(part.name, part.task.id, result and result.id, part.reason))
    return found


def _times(parts: Sequence[Part], results: Results) -> OptionTimes:
    kernels = tuple(_kernel(part, results) for part in parts if part.space is not None)
    return OptionTimes(kernels, sum(_library_ms(part, results) for part in parts if part.space is None))


def _library_ms(part: Part, results: Results) -> float:
    measured = part.task and results.get(part.task.id, {}).get(THE_LIBRARY)
    return measured.ms if measured and measured.ms is not None else part.ms


def _kernel(part: Part, results: Results) -> KernelTimes:
    of = results.get(part.task.id, {}) if part.task else {}
    found = [of.get(variant) for variant in part.variants()]
    name = part.task.id if part.task else part.name
    if not any(result and result.ms is not None for result in found):
        return KernelTimes(name, tuple(part.ms * (1 + _SIMPLER * n) for n in range(len(found))), (0.0,) * len(found))
    ms = tuple(result.ms if result and result.ms is not None else inf for result in found)
    return KernelTimes(name, ms, tuple(_used(result) for result in found))


def _used(result: StoredResult | None) -> float:
    """The error of a result as a share of what is allowed."""
    if result is None:
        return inf
    return result.error / result.allowed if result.error and result.allowed else 0.0
