"""What a sweep tells whoever watches it: one plain dataclass for each kind of news, in the order that they happen."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.candidate import Candidate
from kgen.evaluator.protocol import Environment, Evaluation


@dataclass(frozen=True)
class Started:
    """A sweep begins, or goes on: how large its space is and how much of it was found done."""

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


@dataclass(frozen=True)
class Notice:
    """One line for people: a warning, or why something waits."""

    text: str


@dataclass(frozen=True)
class Measured:
    """The baselines' medians in milliseconds, by name, measured in this sweep."""

    baselines: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Evaluated:
    """One candidate was judged. ``median_ms`` and ``speedup`` (over the fastest baseline) are from its screening."""

    number: int
    candidate: Candidate
    evaluation: Evaluation
    median_ms: float | None
    speedup: float | None


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


Event = Started | Notice | Measured | Evaluated | Finals | Finished
