"""The rows of each chart, made from a section: a dataclass for each kind, with the fields of the charts."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Iterable, Sequence

from kgen.protocol import KERNELBENCH_TOLERANCE, RMS_FACTOR, Accuracy
from kgen.store.effects import Cell, Group, Parameter, Plan, screened
from kgen.store.results import Failures, Rejections, SweepRow, Trial
from kgen.views import text
from kgen.views.report.sections import Section, fastest_first
from kgen.views.report.thinning import thin
from kgen.views.report.words import meaning

BEYOND = 30.0  #: times the largest error; a limit above it is told in words, as a line would flatten the rest


@dataclass(frozen=True)
class Named:
    """The description of a candidate, once for all rows that name it; the page's script adds it to each row."""

    plan: str
    params: str


@dataclass(frozen=True)
class Described:
    """The result of a candidate or a baseline in words, for its tooltip."""

    candidate: str
    figures: str
    time: str
    relative: str
    judged: str


@dataclass(frozen=True)
class Point(Described):
    """A right candidate. ``error`` is over PyTorch's own in float32; ``near`` counts the others drawn as this point."""

    near: str
    accuracy: Accuracy
    number: int
    speedup: float
    error: float | None
    final: bool
    best: bool


@dataclass(frozen=True)
class Step(Point):
    """A candidate that ``improves``: its screening was faster than all before it in its sweep.

    The last row of a sweep repeats the best at the number of the last candidate, where the line ends.
    """

    sweep: str
    improves: bool


@dataclass(frozen=True)
class Limit:
    """The error that a class of accuracy allows, or PyTorch's own one, over PyTorch's own in float32."""

    label: str
    error: float


@dataclass(frozen=True)
class Beyond:
    """A limit far beyond the chart, in words."""

    label: str


@dataclass(frozen=True)
class GroupRow:
    """Candidates with a common value: quartiles of their speedups, and the fastest of them."""

    name: str
    count: int
    low: float
    middle: float
    high: float
    best: float
    candidate: str


@dataclass(frozen=True)
class ParameterRows:
    """A parameter with its values. ``share`` is the part of the spread that it alone explains."""

    name: str
    meaning: str
    share: float
    groups: tuple[GroupRow, ...]


@dataclass(frozen=True)
class CellRow:
    """One value of each of two parameters: the number of candidates, and the fastest of them."""

    x: str
    y: str
    count: int
    speedup: float
    figures: str
    candidate: str


@dataclass(frozen=True)
class PairRows:
    """Two parameters, given by their places, with a cell for each pair of values that occurs."""

    first: int
    second: int
    cells: tuple[CellRow, ...]


@dataclass(frozen=True)
class PlanRows:
    """One plan with its parameters, the strongest first, and each pair of them."""

    name: str
    count: int
    parameters: tuple[ParameterRows, ...]
    pairs: tuple[PairRows, ...]


@dataclass(frozen=True)
class Count:
    """The number of candidates or combinations of one kind, with an example."""

    kind: str
    count: int
    example: str
    reason: str


def named(section: Section, shown: Iterable[str]) -> dict[str, Named]:
    """The descriptions of candidates that rows name by the beginning of their id."""
    every = {text.short(trial.candidate): trial for of in (section.trials, *section.others.values()) for trial in of}
    wanted = dict.fromkeys(name for name in shown if name in every)
    return {name: Named(every[name].plan, text.params(every[name].params)) for name in wanted}


# Speed against error -------------------------------------------------------------------------------------------


def points(section: Section, cells: int) -> tuple[Point, ...]:
    """Right candidates of all classes whose error is known, thinned out class by class; the best is kept."""
    ids = [row.id for row in section.sweeps]
    of_class = {section.best.accuracy: section.right}
    of_class |= {accuracy: fastest_first(trials, ids) for accuracy, trials in section.others.items()}
    found: list[Point] = []
    for accuracy, trials in of_class.items():
        unit = _unit(section, accuracy)
        known = [(trial, trial.error_ratio * unit) for trial in trials if trial.error_ratio and unit]
        known.sort(key=lambda item: not _is_best(section, item[0]))
        thinned = thin(known, cells, lambda item: item[0].speedup or 0.0, lambda item: math.log(item[1]))
        found += [_point(section, trial, accuracy, count) for (trial, _), count in thinned]
    return tuple(found)


def limits(section: Section, shown: Sequence[Point]) -> tuple[tuple[Limit, ...], tuple[Beyond, ...]]:
    """The limit of each class: as a line, or in words where it lies far beyond every error shown.

    The limit of a class is known where a candidate was judged in it. That of ``kernelbench`` is always known.
    """
    reference = _reference_error(section)
    if not reference or not shown:
        return (), ()
    found = [Limit("PyTorch's own error", 1.0)]
    for accuracy, rms in section.eager_rms.items():
        if accuracy is not Accuracy.KERNELBENCH:
            found.append(Limit(f"most that {accuracy} allows", RMS_FACTOR * rms / reference))
    found.append(Limit("most that kernelbench allows", KERNELBENCH_TOLERANCE / reference))
    highest = BEYOND * max(RMS_FACTOR, *(point.error or 0.0 for point in shown))
    far = [f"↑ {limit.label}: {limit.error:.2g} × PyTorch's" for limit in found if limit.error > highest]
    return tuple(limit for limit in found if limit.error <= highest), tuple(map(Beyond, far))


def _reference_error(section: Section) -> float | None:
    """PyTorch's own error in float32, or in the section's own class where float32 was never judged."""
    return section.eager_rms.get(Accuracy.FP32) or section.eager_rms.get(section.best.accuracy)


def _unit(section: Section, accuracy: Accuracy) -> float | None:
    """The factor from error ratios of this class to those over the reference error; ``None`` where one is unknown."""
    reference, own = _reference_error(section), section.eager_rms.get(accuracy)
    return own / reference if reference and own else None


def _point(section: Section, trial: Trial, accuracy: Accuracy, stands_for: int = 1) -> Point:
    unit = _unit(section, accuracy)
    error = trial.error_ratio * unit if trial.error_ratio and unit else None
    return Point(
        **vars(described(section, trial, error)),
        near=f"itself and {stands_for - 1} near it" if stands_for > 1 else "itself",
        accuracy=accuracy,
        number=trial.number,
        speedup=trial.speedup or 0.0,
        error=error,
        final=trial.final,
        best=_is_best(section, trial),
    )


def _is_best(section: Section, trial: Trial) -> bool:
    return section.best.trial is not None and trial.candidate == section.best.trial.candidate


def described(section: Section, trial: Trial, error: float | None) -> Described:
    """A timed candidate in words."""
    how = "a finalist" if trial.final else "screened"
    return Described(
        candidate=text.short(trial.candidate),
        figures=text.speedup(trial.speedup, trial.speedup_low, trial.speedup_high),
        time=text.milliseconds(section.ms(trial)),
        relative=text.error_ratio(error),
        judged=f"{how}, number {trial.number} of sweep {text.short(trial.sweep)}",
    )


# Best so far ---------------------------------------------------------------------------------------------------


def tried(section: Section, lines: int, cells: int) -> tuple[Point, ...]:
    """The screenings of the latest ``lines`` sweeps, thinned out."""
    latest = {row.id for row in section.compared[:lines]}
    shown = [trial for trial in _screenings(section) if trial.sweep in latest]
    thinned = thin(shown, cells, lambda trial: trial.number, screened)
    return tuple(_point(section, trial, section.best.accuracy, count) for trial, count in thinned)


def steps(section: Section, lines: int) -> tuple[Step, ...]:
    """The best screening so far in each of the latest ``lines`` sweeps."""
    return tuple(step for sweep in section.compared[:lines] for step in _steps(section, sweep))


def _screenings(section: Section) -> list[Trial]:
    """The candidates with the figures of their screening alone, which compare with each other."""
    return [
        replace(trial, speedup=trial.screened_speedup, speedup_low=None, speedup_high=None, final=False)
        for trial in section.trials
        if trial.screened_speedup is not None
    ]


def _steps(section: Section, sweep: SweepRow) -> list[Step]:
    name = f"{text.short(sweep.id)}, {text.moment(sweep.started_at)}"
    found: list[Step] = []
    for trial in _screenings(section):
        if trial.sweep == sweep.id and (not found or screened(trial) > found[-1].speedup):
            found.append(Step(**vars(_point(section, trial, sweep.accuracy)), sweep=name, improves=True))
    return [*found, *(replace(step, number=sweep.tried, improves=False) for step in found[-1:])]


# Parameters ----------------------------------------------------------------------------------------------------


def group(item: Group) -> GroupRow:
    """A group with its fastest candidate, by id."""
    return GroupRow(
        name=item.name,
        count=item.count,
        low=item.low,
        middle=item.middle,
        high=item.high,
        best=screened(item.best),
        candidate=text.short(item.best.candidate),
    )


def parameters(plan: Plan) -> PlanRows:
    """A plan with the groups of its parameters, and the cells of each pair of them."""
    return PlanRows(
        name=plan.whole.name,
        count=plan.whole.count,
        parameters=tuple(
            ParameterRows(item.name, meaning(item.name), item.share, tuple(map(group, item.groups)))
            for item in plan.parameters
        ),
        pairs=tuple(
            PairRows(a, b, tuple(_cell(plan.parameters[a], plan.parameters[b], cell) for cell in cells))
            for (a, b), cells in plan.pairs.items()
        ),
    )


def _cell(first: Parameter, second: Parameter, cell: Cell) -> CellRow:
    best = cell.best
    return CellRow(
        x=first.groups[cell.first].name,
        y=second.groups[cell.second].name,
        count=cell.count,
        speedup=screened(best),
        figures=text.speedup(screened(best)),
        candidate=text.short(best.candidate),
    )


# Counts --------------------------------------------------------------------------------------------------------


def failure(item: Failures) -> Count:
    """A kind of failure."""
    return Count(item.status.value, item.count, text.short(item.example), item.reason)


def rejection(item: Rejections) -> Count:
    """A constraint that ruled combinations out."""
    return Count(item.constraint, item.count, "", item.reason)
