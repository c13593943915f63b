"""The effect of each parameter: the candidates of one plan grouped by the values of one parameter, and of two.

Groups are made within one plan, because ``k0.block`` belongs to another kernel in another plan. All figures come from
the screening, which treats every candidate alike.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from itertools import combinations
from typing import Iterable, Mapping, Sequence

from kgen.candidate import ParamValue
from kgen.protocol.statistics import explained
from kgen.store.results import Trial

MOST_PLANS = 8  #: plans with shown parameters, at most: the plans with the fastest candidates
MOST_PARAMETERS = 12  #: shown parameters of a plan, at most: the strongest parameters
RANKED_FROM = 10  #: right candidates of a plan; with fewer, chance decides which parameter seems to matter


@dataclass(frozen=True)
class Group:
    """Right candidates with a common value. Speedups are over the fastest baseline, from the screening."""

    name: str
    count: int
    low: float  #: the lower quartile of their speedups
    middle: float  #: the median
    high: float  #: the upper quartile
    best: Trial  #: the fastest of them

    @classmethod
    def of(cls, name: str, trials: Sequence[Trial]) -> Group:
        """The group of ``trials``: at least one, all of them timed."""
        ordered = sorted(trials, key=screened)
        low, middle, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.25, 0.5, 0.75))
        return cls(name, len(ordered), screened(low), screened(middle), screened(high), ordered[-1])


@dataclass(frozen=True)
class Parameter:
    """One parameter of a plan, with a group for each of its values.

    ``share`` is the part of the spread of the times that the parameter alone explains, between 0 and 1. It is
    :func:`kgen.protocol.statistics.explained` of the logarithms of the speedups.
    """

    name: str
    share: float
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Cell:
    """The candidates with one value of each of two parameters; values are places among the parameters' groups."""

    first: int
    second: int
    count: int
    best: Trial


@dataclass(frozen=True)
class Plan:
    """One fusion plan: all of its candidates, its parameters, the strongest first, and each pair of them."""

    whole: Group
    parameters: tuple[Parameter, ...]
    pairs: Mapping[tuple[int, int], tuple[Cell, ...]]


def screened(trial: Trial) -> float:
    """The speedup of a timed candidate in its screening. Where that speedup is not known, the candidate's only speedup
    counts."""
    found = trial.speedup if trial.screened_speedup is None else trial.screened_speedup
    assert found is not None
    return found


def plans(trials: Iterable[Trial], best: Trial | None) -> tuple[Plan, ...]:
    """The plans of right and timed candidates: the plan of the ``best``, then the plans with the fastest candidates.

    A plan with fewer than :data:`RANKED_FROM` candidates has no parameters.
    """
    by_plan: dict[str, list[Trial]] = {}
    for trial in trials:
        by_plan.setdefault(trial.plan, []).append(trial)
    first = best.plan if best else None
    ordered = sorted(by_plan, key=lambda name: (name != first, -max(map(screened, by_plan[name]))))
    return tuple(_plan(name, by_plan[name]) for name in ordered[:MOST_PLANS])


def _plan(name: str, trials: Sequence[Trial]) -> Plan:
    ordered = sorted(trials, key=screened)
    whole = Group.of(name, ordered)
    if len(ordered) < RANKED_FROM:
        return Plan(whole, (), {})
    names = dict.fromkeys(name for trial in ordered for name in trial.params)
    columns = {name: [trial.params.get(name) for trial in ordered] for name in names}
    parameters = [_parameter(name, column, ordered) for name, column in columns.items() if len(set(column)) > 1]
    parameters.sort(key=lambda parameter: -parameter.share)
    kept = tuple(parameters[:MOST_PARAMETERS])
    coded = [_codes(parameter, columns[parameter.name]) for parameter in kept]
    pairs = {(a, b): _cells(coded[a], coded[b], ordered) for a, b in combinations(range(len(kept)), 2)}
    return Plan(whole, kept, pairs)


def _parameter(name: str, column: Sequence[ParamValue | None], trials: Sequence[Trial]) -> Parameter:
    by_value: dict[ParamValue | None, list[Trial]] = {}
    for value, trial in zip(column, trials, strict=True):
        by_value.setdefault(value, []).append(trial)
    ordered = sorted(by_value, key=_place)
    share = explained([math.log(screened(trial)) for trial in group] for group in by_value.values())
    return Parameter(name, share, tuple(Group.of(_text(v), by_value[v]) for v in ordered))


def _place(value: ParamValue | None) -> tuple[bool, float, str]:
    """The sort key of a value: numbers in numerical order come before words in alphabetical order."""
    is_number = isinstance(value, (int, float))
    return (not is_number, float(value) if isinstance(value, (int, float)) else 0.0, str(value))


def _text(value: ParamValue | None) -> str:
    return "none" if value is None else str(value)


def _codes(parameter: Parameter, column: Sequence[ParamValue | None]) -> list[int]:
    """The place of each value among the parameter's groups."""
    place = {group.name: number for number, group in enumerate(parameter.groups)}
    return [place[_text(value)] for value in column]


def _cells(first: Sequence[int], second: Sequence[int], ordered: Sequence[Trial]) -> tuple[Cell, ...]:
    """One cell for each pair of values that occurs. A dict keeps the last value of equal keys: here the fastest
    candidate."""
    keys = list(zip(first, second, strict=True))
    counts, fastest = Counter(keys), dict(zip(keys, ordered, strict=True))
    return tuple(Cell(*key, count, fastest[key]) for key, count in counts.items())
