"""Evaluations of a sweep as they come: each is stored at once, told, and compared with the baselines of its device."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Callable, Sequence

from kgen.candidate import SHORT, Candidate
from kgen.protocol import Evaluation, Status, Timing
from kgen.protocol.statistics import median_ms, ratio_interval
from kgen.store import Database, tasks as stored_tasks
from kgen.tuning import events
from kgen.tuning.leaders import Right, fastest
from kgen.tuning.opening import SweepRequest
from kgen.tuning.pipeline import Outcome, original
from kgen.tuning.tasks import assembly
from kgen.tuning.time_budget import TimeBudget

_SCREENING_RESAMPLES = 400  # bootstrap resamples; the interval of a screening is shown and decides nothing


@dataclass
class Judged:
    """The judged candidates of one sweep. ``steps_of`` tells the tuned steps of a candidate of a network."""

    database: Database
    sweep: str
    request: SweepRequest
    problem_id: str
    environment_id: str
    time_budget: TimeBudget
    on_event: events.Listener
    steps_of: Callable[[Candidate], Sequence[assembly.Step] | None]
    number: int = 0
    counts: Counter[Status] = field(default_factory=Counter)
    right: list[Right] = field(default_factory=list)  # the fastest right candidates
    milliseconds: dict[str, float] = field(default_factory=dict)  # of right candidates, by the prefix of their ids
    stored: dict[str, Evaluation] = field(default_factory=dict)  # in this sweep before it continued
    baselines: dict[str, tuple[Timing, ...]] = field(default_factory=dict)  # by device
    kept: list[events.Event] = field(default_factory=list)  # told after the next commit
    without_steps: list[Candidate] = field(default_factory=list)  # stored before the tasks of their steps were known

    @property
    def found_right(self) -> bool:
        """Whether a candidate with a kernel of its own is right."""
        return any(not right.candidate.control for right in self.right)

    def known(self, candidate: Candidate) -> Evaluation | None:
        """The stored evaluation of the candidate on this problem, in this environment and accuracy class."""
        found = self.stored.get(candidate.id)
        if found is not None or self.request.fresh:
            return found
        known = self.database.known(candidate.id, self.environment_id, self.request.accuracy, self.problem_id)
        # A stored duplicate does not count: this sweep may never try its original.
        return None if known is None or known.status is Status.DUPLICATE else known

    def keep_all(self, outcomes: Sequence[Outcome]) -> list[float | None]:
        """Commit outcomes together, then report them. Returns the milliseconds of each; see :meth:`_keep`."""
        with self.database.together() if outcomes else contextlib.nullcontext():
            found = [self._keep(outcome) for outcome in outcomes]
        kept, self.kept = self.kept, []
        for event in kept:
            self.on_event(event)
        return found

    def _keep(self, outcome: Outcome) -> float | None:
        """Store an outcome. Returns milliseconds where the candidate, or its original, was right."""
        candidate, evaluation = outcome.candidate, outcome.evaluation
        if outcome.device is not None and len(outcome.baselines) > len(self.baselines.get(outcome.device, ())):
            self._keep_baselines(outcome.device, outcome.baselines)
        right = self._right(outcome)
        self.number += 1
        self.counts[evaluation.status] += 1
        if not outcome.found and not candidate.control:  # which takes less time, and is no try
            self.time_budget.judged(evaluation.seconds)
        if right is not None:
            self.right = fastest([*self.right, right])
            self.milliseconds[candidate.id[:SHORT]] = right.ms
        if candidate.id not in self.stored:
            self._store(outcome, right)
        return self.milliseconds.get(original(evaluation) or candidate.id[:SHORT])

    def _store(self, outcome: Outcome, right: Right | None) -> None:
        """Write an evaluation to the store. Its event follows the commit."""
        ms, speedup = (right.ms, right.speedup) if right is not None else (None, None)
        self.database.add_evaluation(
            self.sweep,
            outcome.candidate,
            outcome.evaluation,
            environment_id=self.environment_id,
            median_ms=ms,
            speedup=speedup and speedup.mid,
        )
        steps = None if outcome.candidate.control else self.steps_of(outcome.candidate)
        if steps is not None:
            stored_tasks.add_steps(self.database, outcome.candidate.id, steps)
        elif not outcome.candidate.control:
            self.without_steps.append(outcome.candidate)
        self.kept.append(
            events.Evaluated(
                self.number, outcome.candidate, outcome.evaluation, ms, speedup, outcome.device, outcome.found
            )
        )

    def add_late_steps(self) -> None:
        """Store the steps of the candidates that were judged before the tasks of a network were tuned."""
        waiting, self.without_steps = self.without_steps, []
        for candidate in waiting:
            stored_tasks.add_steps(self.database, candidate.id, self.steps_of(candidate) or ())

    def _right(self, outcome: Outcome) -> Right | None:
        """The screening of a right candidate against the fastest baseline on its device; ``None`` for another one."""
        timing = outcome.evaluation.timing
        if outcome.evaluation.status is not Status.OK or timing is None:
            return None
        best = min(outcome.baselines, key=median_ms, default=None)
        speedup = ratio_interval(best, timing, resamples=_SCREENING_RESAMPLES) if best else None
        return Right(outcome.candidate, outcome.evaluation, median_ms(timing), speedup)

    def _keep_baselines(self, device: str, timings: tuple[Timing, ...]) -> None:
        """Store the baselines that are new. Earlier screenings then compare with the fastest one."""
        before, self.baselines[device] = self.baselines.get(device, ()), timings
        new = [timing for timing in timings if timing not in before]
        self.database.add_timings(self.sweep, self.environment_id, self.request.accuracy, new)
        if before and (factor := min(map(median_ms, timings)) / min(map(median_ms, before))) < 1.0:
            self.database.scale_speedups(self.sweep, factor)
            self.right = [replace(r, speedup=r.speedup and r.speedup.times(factor)) for r in self.right]
        self.kept.append(events.Measured(tuple((t.subject, median_ms(t)) for t in timings), device))
