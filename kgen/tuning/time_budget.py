"""The time limit of a sweep: the end of its search, and the length of its finals.

    start, baselines are compiled | candidates | what is on its way ends | the leaders are loaded, and timed again
    |------------------------------------------ seconds ------------------------------------------------------|

Each part has an end of its own. A candidate that has not ended by then is cut: it has no verdict, and a notice says so.
Finals end early then, after a few rounds: their verdict is worth some seconds more.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from math import inf
from statistics import median
from typing import Iterable, Sequence

from kgen.evaluator.timing.measure import OVERTIME
from kgen.protocol import Limits, Phase

#: Which part of the time finals take at most.
FINAL_PART = 0.25
#: Which part of the time may pass before every baseline is compiled: the others are left out.
COMPILE_PART = 0.4
#: Which part of the time may pass until candidates are cut. The second one holds before a kernel of its own is right.
JUDGE_PART, FIRST_PART = 0.8, 1.0
#: Which part of the time until candidates are cut kernel tasks of a network take, and how many seconds without a limit.
TASK_PART, TASK_SECONDS = 0.6, 180.0
LEAST_TASK_SECONDS = 15.0  #: seconds; with less, a network is searched as whole files
#: Which part of the time float64 runs take.
REFERENCE_PART = 0.2
#: Which part of the time may pass until finals end with the rounds that they have.
LAST_PART = 1.05
#: Seconds; nothing is cut before, since less time is not enough for one candidate on a busy machine.
LEAST_CUT = 30.0
_GRACE = 0.03  # part of the time, in which what is cut ends
#: Finals are never planned to be shorter: fewer seconds do not order candidates.
LEAST_FINAL_SECONDS = 2.0
#: Calls of each subject in the shortest finals: 20 rounds with one sample, behind a call that is none.
FINAL_CALLS = 40


@dataclass
class TimeBudget:
    """``seconds`` from ``started`` (by the monotonic clock), or no limit. ``final_seconds`` is what finals take without
    one; ``at_once`` candidates are judged side by side, and timed in turns."""

    seconds: float | None
    started: float
    final_seconds: float
    at_once: int = 1
    _spent: dict[str, list[float]] = field(default_factory=dict)  # seconds of judging, by phase

    def judged(self, seconds: Iterable[tuple[str, float]]) -> None:
        """Learn from a candidate how long each phase takes."""
        for phase, spent in seconds:
            self._spent.setdefault(phase, []).append(spent)

    def is_over(self, finalists: int) -> bool:
        """Whether it is time for the finals of ``finalists`` candidates. It is not before one is judged."""
        if self.seconds is None or not self._spent:
            return False
        validated = self._usual(Phase.LOAD) + self._usual(Phase.VALIDATE)
        on_their_way = validated + self.at_once * self._timing_seconds
        return self.left <= on_their_way + self._ready_seconds * finalists + self._planned

    def is_late(self) -> bool:
        """Whether only the time of the finals is left: too late to begin a candidate."""
        return self.seconds is not None and self.left <= self._planned

    def search_until(self, *, found_right: bool) -> float:
        """When the search ends on the monotonic clock, with candidates on their way or not."""
        return self._at((JUDGE_PART if found_right else FIRST_PART) + _GRACE)

    def tasks_until(self, files: int) -> float | None:
        """When a network's kernel tasks are tuned no more, on the monotonic clock, so that ``files`` files are judged
        behind them.

        ``None`` where the time does not suffice for both.
        """
        now = time.monotonic()
        if self.seconds is None:
            return now + TASK_SECONDS
        last = (
            self.judge_until - self._usual(Phase.BUILD) - files * self._candidate_seconds
        )  # they are built beside each other
        until = min(now + TASK_PART * (self.judge_until - now), last)
        return until if until - now >= LEAST_TASK_SECONDS else None

    @property
    def _candidate_seconds(self) -> float:
        """How long a candidate takes from its build to its times, as those on its side share the device."""
        own = self._usual(Phase.LOAD) + self._usual(Phase.VALIDATE)
        return own / self.at_once + self._timing_seconds

    @property
    def _timing_seconds(self) -> float:
        return self._usual(Phase.PREPARE) + self._usual(Phase.TIME)

    @property
    def _ready_seconds(self) -> float:
        """How long a finalist takes until it can be timed."""
        return self._usual(Phase.LOAD) + self._usual(Phase.PREPARE)

    @property
    def is_cut(self) -> bool:
        """Whether a candidate that follows a right one would be cut before it is judged: it is not begun."""
        needed = self._usual(Phase.LOAD) + self._usual(Phase.VALIDATE) + self._timing_seconds
        return time.monotonic() + needed >= self.judge_until

    @property
    def judge_until(self) -> float:
        """When candidates are cut that follow a right one, on the monotonic clock: none is begun any more."""
        return self._at(JUDGE_PART)

    @property
    def finals_until(self) -> float:
        """When the finals end on the monotonic clock, with a result or without one."""
        return self._at(LAST_PART)

    def _at(self, part: float) -> float:
        return inf if self.seconds is None else self.started + part * max(self.seconds, LEAST_CUT)

    def finals(self, finalists: int) -> float:
        """How many seconds the finals of ``finalists`` candidates take, which get ready one after the other before.
        With their overtime, they end by :attr:`finals_until`, unless they would be too short to order candidates."""
        if self.seconds is None:
            return self.final_seconds
        ready = self._ready_seconds * finalists
        room = min(self.left - ready, (self.finals_until - time.monotonic() - ready) / OVERTIME)
        return max(min(self._planned, room), min(self._planned, LEAST_FINAL_SECONDS))

    def finals_end(self, finalists: int) -> float:
        """How many seconds finals may take before they end with the rounds that they have: enough to get ready, and for
        the shortest ones."""
        if self.seconds is None:
            return inf
        least = self._ready_seconds * finalists + OVERTIME * min(self._planned, LEAST_FINAL_SECONDS)
        return max(self.finals_until - time.monotonic(), least)

    def finalists(self, candidates_ms: Sequence[float], baselines_ms: Sequence[float]) -> int:
        """How many of the candidates, the fastest first, can be timed beside the baselines in finals: at least one.
        Finals take about as long for each of them as its screening, or longer."""
        screened = self._usual(Phase.TIME)
        if screened:
            candidates_ms = candidates_ms[: max(1, int(self._planned / screened) - len(baselines_ms))]
        if self.seconds is None:
            return len(candidates_ms)
        if ready := self._ready_seconds:
            spare = self.finals_until - time.monotonic() - OVERTIME * LEAST_FINAL_SECONDS
            candidates_ms = candidates_ms[: max(1, int(spare / ready))]
        room = 1e3 * self._planned / FINAL_CALLS - sum(baselines_ms)
        fitting = (sum(candidates_ms[: n + 1]) <= room for n in range(len(candidates_ms)))
        return max(1, sum(fitting))

    @property
    def left(self) -> float:
        """Seconds that are left; less than 0 where they are up."""
        return (self.seconds or 0.0) - (time.monotonic() - self.started)

    @property
    def _planned(self) -> float:
        return self.final_seconds if self.seconds is None else min(self.final_seconds, FINAL_PART * self.seconds)

    def _usual(self, phase: Phase) -> float:
        return median(self._spent.get(phase, (0.0,)))


def cut_at(seconds: float | None, started: float) -> float:
    """When the parts of a sweep are cut that must end before its first candidate, on the monotonic clock."""
    return inf if seconds is None else started + FIRST_PART * max(seconds, LEAST_CUT)


def limits(seconds: float | None, started: float) -> Limits:
    """The limits of an evaluator for a sweep that takes ``seconds`` from ``started`` on, on the monotonic clock."""
    if seconds is None:
        return Limits()
    cut = max(seconds, LEAST_CUT)
    return Limits(
        compile_until=started + COMPILE_PART * seconds,
        judge_until=started + JUDGE_PART * cut,
        first_until=cut_at(seconds, started),
        reference_seconds=min(Limits.reference_seconds, REFERENCE_PART * seconds),
    )
