"""What a sweep, or the evaluation of one file, tells whoever watches it: one plain dataclass for each kind of news.

    sweep   Started, Measured for each device, Built and Evaluated ..., Finals, Finished; a Notice at any time
    eval    Opened, Step ..., Judged; a Notice at any time
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

from kgen.candidate import Candidate
from kgen.evaluator.protocol import Environment, Evaluation, Health, Status, Timing
from kgen.problem import Problem
from kgen.statistics import Interval, verdict


@dataclass(frozen=True)
class Started:
    """A sweep begins, or goes on: how large its space is and how much of it was found done.

    ``device`` names all of its devices; the search ends after ``budget`` candidates, or after ``seconds`` if they are
    given.
    """

    sweep: str
    problem: str
    mode: str
    device: str
    environment: Environment
    accuracy: str
    plans: int
    combinations: int
    rejected: int
    budget: int
    found_done: int
    db: str
    seconds: float | None = None


@dataclass(frozen=True)
class Notice:
    """One line for people: a warning, or why something waits."""

    text: str


@dataclass(frozen=True)
class Measured:
    """The baselines' medians in milliseconds, by name, measured in this sweep on one of its devices."""

    baselines: tuple[tuple[str, float], ...]
    device: str


@dataclass(frozen=True)
class Built:
    """The build of one candidate ended; ``cached`` if it was found done."""

    candidate: str
    ok: bool
    cached: bool
    seconds: float


@dataclass(frozen=True)
class Evaluated:
    """One candidate was judged, or its evaluation was ``taken_over`` from an earlier sweep.

    ``median_ms`` and ``speedup`` (over the fastest baseline on ``device``, with its interval) are from its screening.
    """

    number: int
    candidate: Candidate
    evaluation: Evaluation
    median_ms: float | None = None
    speedup: Interval | None = None
    device: str | None = None
    taken_over: bool = False


@dataclass(frozen=True)
class Finals:
    """The leaders are about to be timed again, interleaved with each other and with the baselines."""

    candidates: tuple[str, ...]


@dataclass(frozen=True)
class Leader:
    """One row of the table at a sweep's end: a finalist or a baseline.

    ``speedup`` is over the fastest baseline; its interval is known of those that were timed interleaved. ``tie`` marks
    those that cannot be told from the best.
    """

    candidate: str | None
    name: str
    params: str
    median_ms: float
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    error_ratio: float | None
    tie: bool
    control: bool


@dataclass(frozen=True)
class Finished:
    """A sweep ended. ``state`` is ``finished``, ``interrupted`` or ``failed``; counts are evaluations by status."""

    sweep: str
    state: str
    seconds: float
    counts: tuple[tuple[str, int], ...]
    leaders: tuple[Leader, ...]
    best: str | None
    beats_baseline: bool


@dataclass(frozen=True)
class Opened:
    """One file is about to be judged: on which problem, where, and at which class of accuracy.

    ``sweep`` is what the store has it as: a sweep of one candidate, of kind ``eval``.
    """

    sweep: str
    file: str
    candidate: str
    problem: Problem
    device: str
    environment: Environment
    accuracy: str
    health: Health
    db: str


@dataclass(frozen=True)
class Step:
    """What the evaluation of one file does now, in a few words."""

    text: str


@dataclass(frozen=True)
class Judged:
    """What one file came to.

    Only a right one has a ``timing``, taken beside the baselines: their medians are in milliseconds, and ``speedup`` is
    over ``baseline``, the fastest of them.
    """

    opened: Opened
    evaluation_id: str
    evaluation: Evaluation
    timing: Timing | None = None
    median_ms: float | None = None
    baselines: tuple[tuple[str, float], ...] = ()
    baseline: str | None = None
    speedup: Interval | None = None

    @property
    def ok(self) -> bool:
        """Whether it is right in every test case, and its timing has no anomaly."""
        return self.evaluation.status is Status.OK

    @property
    def verdict(self) -> str | None:
        """What the speedup's interval says: ``faster``, ``slower``, ``same`` or ``cannot tell``."""
        return verdict(self.speedup) if self.speedup else None


Event = Started | Notice | Measured | Built | Evaluated | Finals | Finished | Opened | Step | Judged

#: Who is told.
Listener = Callable[[Event], None]
