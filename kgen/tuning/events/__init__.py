"""The events of a sweep, or of the evaluation of one file: one plain dataclass for each kind.

    sweep   Step ..., Started, Measured for each device, Built and Evaluated ..., Finals, Finished
            (of a network, Tuning ... comes behind the first candidates)
    eval    Step ..., Opened, Step ..., Judged
    suite   SuiteStarted, then for each problem ProblemStarted, its sweep's and ProblemEnded; SuiteFinished
            (the sweep's are wrapped in Beside where several problems are swept at once)

A Notice may come at any time. Events may come from any thread.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Callable, Mapping

from kgen.candidate import Candidate, Plan
from kgen.problems.problem import Problem
from kgen.protocol import Environment, Evaluation, Health, Status, Timing
from kgen.protocol.statistics import Interval, verdict


@dataclass(frozen=True)
class Step:
    """The phase that begins now, in a few words: ``compiling the max-autotune baseline``."""

    text: str


@dataclass(frozen=True)
class Started:
    """A sweep begins or continues.

    ``device`` names all of its devices. ``found_done`` counts the candidates that an earlier process of this sweep
    judged. The search ends after ``budget`` candidates, or after ``seconds`` where they are given.
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
    """One line for people: a warning, or the reason of a wait."""

    text: str


@dataclass(frozen=True)
class Cluster:
    """The part of a cluster that a sweep or suite has now: nodes, devices, and devices that are busy."""

    nodes: int
    devices: int
    busy: int


@dataclass(frozen=True)
class Measured:
    """The baselines' medians in milliseconds, by name, measured in this sweep on one of its devices."""

    baselines: tuple[tuple[str, float], ...]
    device: str


@dataclass(frozen=True)
class Built:
    """The build of one candidate ended. ``cached``: it existed already."""

    candidate: str
    ok: bool
    cached: bool
    seconds: float


@dataclass(frozen=True)
class Tuning:
    """A network's kernel task is tuned now, the ``number``-th ``of`` this round's.

    ``label`` is the step for people, as plans have it. ``seconds_left`` is the time until the tuning ends, where that
    is known.
    """

    number: int
    of: int
    label: str
    seconds_left: float | None = None


@dataclass(frozen=True)
class Evaluated:
    """One candidate was judged, or its evaluation was ``taken_over`` from an earlier sweep.

    ``median_ms`` and ``speedup`` (over the fastest baseline on ``device``, with its interval) come from its screening.
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
    """The final timing of the leaders begins, interleaved with each other and with the baselines."""

    candidates: tuple[str, ...]


@dataclass(frozen=True)
class Leader:
    """One row of the table at a sweep's end: a candidate or a baseline (``candidate`` is ``None``, without a plan).

    ``median_ms`` and ``speedup`` (over the fastest baseline) come from the same samples. Rows that were timed
    interleaved have an interval. ``tie`` marks candidates within the interval of the best.
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
    plan_data: Plan = Plan()

    @property
    def too_busy(self) -> bool:
        """Whether the machine was too busy to tell this row from the fastest baseline."""
        if self.speedup is None or self.speedup_low is None or self.speedup_high is None:
            return False
        return Interval(self.speedup_low, self.speedup, self.speedup_high).cannot_tell


@dataclass(frozen=True)
class Finished:
    """A sweep ended. ``state`` is ``finished``, ``interrupted`` or ``failed``; ``counts`` are evaluations by status."""

    sweep: str
    state: str
    seconds: float
    counts: tuple[tuple[str, int], ...]
    leaders: tuple[Leader, ...]
    best: str | None
    beats_baseline: bool


@dataclass(frozen=True)
class Opened:
    """The evaluation of one file begins: its problem, device and class of accuracy.

    ``sweep`` is its id in the database, where it is a sweep of one candidate, of kind ``eval``.
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
class Judged:
    """The result of one file.

    Only a right file has a ``timing``, taken beside the baselines. Times are in milliseconds, and ``speedup`` is over
    ``baseline``, the fastest of ``baselines``. All figures come from the same samples.
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
        """Whether the file is right in every test case."""
        return self.evaluation.status is Status.OK

    @property
    def verdict(self) -> str | None:
        """The verdict on the speedup: ``faster``, ``slower``, ``same`` or ``cannot tell``."""
        return verdict(self.speedup) if self.speedup else None


@dataclass(frozen=True)
class SuiteStarted:
    """A suite begins, or continues: ``ended`` of its ``problems`` ended under the same command before.

    ``seconds`` is the limit of each problem.
    """

    problems: int
    ended: int
    seconds: float | None
    db: str


@dataclass(frozen=True)
class ProblemStarted:
    """The ``number``-th problem of a suite begins."""

    number: int
    problems: int
    problem: str
    path: str


@dataclass(frozen=True)
class ProblemEnded:
    """A problem of a suite ended: ``swept``, ``refused``, ``failed`` or ``interrupted``.

    ``verdict`` is as in :mod:`kgen.store.scores`; ``ms`` and ``speedup`` (over the fastest baseline) are the best's.
    """

    number: int
    problems: int
    problem: str
    path: str
    outcome: str
    verdict: str
    ms: float | None
    speedup: Interval | None
    reason: str
    seconds: float
    sweep: str | None


@dataclass(frozen=True)
class SuiteFinished:
    """A suite ended: ``finished`` or ``interrupted``.

    ``counts`` are its problems by outcome, those of earlier runs among them; ``left`` were not reached. ``troubled``
    names those that were refused or failed.
    """

    state: str
    seconds: float
    problems: int
    counts: Mapping[str, int]
    troubled: tuple[str, ...]


@dataclass(frozen=True)
class Beside:
    """An event of the sweep of one problem, by its number, where several problems of a suite are swept at once."""

    number: int
    problem: str
    event: "Event"


#: The events of a suite, around those of its sweeps.
SuiteEvent = SuiteStarted | ProblemStarted | ProblemEnded | SuiteFinished

Event = (
    Beside
    | Step
    | Started
    | Notice
    | Cluster
    | Measured
    | Built
    | Tuning
    | Evaluated
    | Finals
    | Finished
    | Opened
    | Judged
    | SuiteEvent
)

#: Receives each event.
Listener = Callable[[Event], None]


class Later:
    """A listener that keeps events until another one is there. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[Event] = []
        self._listener: Listener = self._kept.append

    def __call__(self, event: Event) -> None:
        with self._lock:
            self._listener(event)

    def tell(self, listener: Listener) -> None:
        """Give ``listener`` the events that were kept, and all that follow."""
        with self._lock:
            self._listener = listener
            for event in self._kept:
                listener(event)
