"""Scores: the result of each problem, and the results of a set of problems together.

    subjects (files, or all of the database) + bests + attempts -> Score for each problem -> Summary

``fast_p`` is KernelBench's: the share of all problems that are right and more than ``p`` times as fast as eager. See
Ouyang et al., "KernelBench: Can LLMs Write Efficient GPU Kernels?", 2025, section 3.2.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Iterable, Mapping, Sequence

from sqlalchemy import Connection, select

from kgen.candidate import SHORT, Plan
from kgen.problems.problem_set import Member
from kgen.protocol import Accuracy, Depth, Timing
from kgen.protocol.statistics import Interval, ratio_interval
from kgen.store import attempts, models, queries, ranking, rows
from kgen.store.attempts import StoredAttempt
from kgen.store.database import Database
from kgen.store.reading import chunks
from kgen.store.results import BestRow, Failures, ProblemRow, SweepDetail, SweepRow, Trial
from kgen.store.selection import EVERY, Selection, state

#: The thresholds of ``fast_p`` that KernelBench's tables have.
THRESHOLDS = (0.0, 1.0, 1.5, 2.0)

#: Resamples for the interval of the speedup over eager: its ends are shown with three digits.
_RESAMPLES = 500
_SLOW_CONTROL = 0.95  #: share of eager's speed; screened times of equal work differ by less


class Verdict(StrEnum):
    """The result of a problem. The first three are those of a kernel of its own that was right, and timed in finals."""

    #: The speedup's whole interval lies above 1.
    FASTER = "faster"
    #: The interval holds 1.
    SAME = "same"
    #: The speedup's whole interval lies below 1; or no kernel was right, and the control is slower than eager.
    SLOWER = "slower"
    #: kgen has no kernel for it.
    NOTHING_TO_TRY = "nothing to try"
    #: The time was up before a kernel of its own was judged, or timed in finals.
    NOT_JUDGED = "not judged in time"
    #: Kernels were tried, and none was right.
    NONE_RIGHT = "none right"
    #: The problem does not serve; the reason says why.
    REFUSED = "refused"
    #: kgen broke on it.
    FAILED = "failed"
    #: No sweep of it has ended.
    NOT_SWEPT = "not swept"


RIGHT = (Verdict.FASTER, Verdict.SAME, Verdict.SLOWER)


@dataclass(frozen=True)
class Score:
    """The result of one problem in one environment and class of accuracy.

    The figures are those of the best right candidate with a kernel of its own. ``speedup`` is over the fastest of
    ``baselines`` (in milliseconds), and ``over_eager`` over eager, each with its 95% interval. Both are ``None``
    without such a candidate. Then ``ms``, ``error_ratio`` and ``plan`` are those of the control, if it is right.
    """

    problem: str
    verdict: Verdict
    ms: float | None = None
    speedup: Interval | None = None
    over_eager: Interval | None = None
    baselines: Mapping[str, float] = field(default_factory=dict)
    error_ratio: float | None = None
    accuracy: str | None = None
    plan: str | None = None
    plan_data: Plan = Plan()
    reason: str | None = None
    sweep: str | None = None

    @property
    def right(self) -> bool:
        """Whether a candidate was right; the control counts, too."""
        return self.verdict in RIGHT or self.ms is not None


@dataclass(frozen=True)
class Summary:
    """The results of problems together.

    Shares are of all ``problems``. Means are over the right problems. A problem without a right kernel of its own
    counts as 1.0. ``fast`` maps ``p`` to ``fast_p``. ``geomean`` is over the fastest baseline.
    """

    problems: int
    right: int
    fast: Mapping[float, float]
    geomean: float | None
    geomean_over_eager: float | None
    verdicts: Mapping[Verdict, int]

    @property
    def correct(self) -> float:
        """The share of the problems that are right."""
        return self.right / self.problems if self.problems else 0.0


def summary(scores: Sequence[Score]) -> Summary:
    """The summary of some problems."""
    right = [score for score in scores if score.right]
    over_eager = [_mid(score.over_eager) for score in right]
    return Summary(
        problems=len(scores),
        right=len(right),
        fast={p: fast(over_eager, len(scores), p) for p in THRESHOLDS},
        geomean=_geometric_mean([_mid(score.speedup) for score in right]),
        geomean_over_eager=_geometric_mean(over_eager),
        verdicts=Counter(score.verdict for score in scores),
    )


def fast(over_eager: Iterable[float], problems: int, p: float) -> float:
    """``fast_p``: the share of ``problems`` that are right and have a speedup over eager above ``p``."""
    return sum(speedup > p for speedup in over_eager) / problems if problems else 0.0


def _mid(speedup: Interval | None) -> float:
    """A right problem's speedup: PyTorch's own where no kernel of its own was right."""
    return speedup.mid if speedup else 1.0


def _geometric_mean(values: Sequence[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


# Of which problems ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Subject:
    """A problem to score: its row in the database, if it has one, and the latest attempt at it."""

    title: str
    row: ProblemRow | None
    attempt: StoredAttempt | None
    unreadable: str = ""


def of_files(
    database: Database, members: Sequence[Member], *, accuracy: Accuracy | None = None, among: Selection = EVERY
) -> tuple[Score, ...]:
    """The scores of files, in their order. A file's present text counts, in the mode asked for or the default one."""
    tried = attempts.latest(database, [member.source_hash for member in members], among=among)
    known: dict[str, list[ProblemRow]] = {}
    for row in queries.problems(database):
        known.setdefault(row.source_hash, []).append(row)
    subjects = []
    for member in members:
        mode = member.problem and member.problem.asked_mode
        row = _in_mode(known.get(member.source_hash, ()), mode)
        found = [a for a in tried.get(member.source_hash, ()) if _fits(a, mode, accuracy)]
        subjects.append(_Subject(member.title, row, next(iter(found), None), member.reason))
    return _scores(database, subjects, accuracy, among)


def of_database(
    database: Database, *, name: str | None = None, accuracy: Accuracy | None = None, among: Selection = EVERY
) -> tuple[Score, ...]:
    """The scores of all problems in the database, or of those with this name, the latest first."""
    tried = attempts.latest(database, among=among)
    subjects = []
    for row in queries.problems(database, name=name):
        mode = None if row.default_mode else row.mode
        found = [a for a in tried.pop(row.source_hash, ()) if _fits(a, mode, accuracy)]
        title = row.title if row.default_mode else f"{row.title}, {row.mode} mode"
        subjects.append(_Subject(title, row, next(iter(found), None)))
    for found in tried.values():
        fitting = [a for a in found if name in (None, a.name) and _fits(a, a.mode, accuracy)]
        subjects += [_Subject(fitting[0].title, None, fitting[0])] if fitting else []
    scores = _scores(database, subjects, accuracy, among)
    # A problem that only `kgen eval` knows, or of which nothing was selected, was not asked about.
    return tuple(score for score in scores if score.verdict is not Verdict.NOT_SWEPT or score.reason)


def _in_mode(known: Sequence[ProblemRow], mode: str | None) -> ProblemRow | None:
    if mode is not None:
        return next((row for row in known if row.mode == mode), None)
    return next((row for row in known if row.default_mode), known[0] if known else None)


def _fits(attempt: StoredAttempt, mode: str | None, accuracy: Accuracy | None) -> bool:
    return attempt.mode in (None, mode) and (accuracy is None or attempt.accuracy in accuracy.stored_as)


# Their results -------------------------------------------------------------------------------------------------


def _scores(
    database: Database, subjects: Sequence[_Subject], accuracy: Accuracy | None, among: Selection
) -> tuple[Score, ...]:
    bests = _bests(database, [subject.row.id for subject in subjects if subject.row], accuracy, among)
    finals = [best.trial for best in bests.values() if best.trial and best.trial.final]
    undecided = [best for best in bests.values() if not (best.trial and best.trial.final)]
    with database.connections.read() as connection:
        over_eager = _over_eager(connection, finals)
        swept = _swept(connection, undecided, among)
    right = _right(database, swept)
    scores = []
    for subject in subjects:
        best = bests.get(subject.row.id) if subject.row else None
        if best and best.trial and best.trial.final:
            scores.append(_proven(subject, best, best.trial, over_eager[best.trial.sweep, best.trial.candidate]))
        else:
            sweeps = swept.get(subject.row.id, ()) if subject.row else ()
            scores.append(_unproven(database, subject, best, sweeps, right))
    return tuple(scores)


def _bests(database: Database, ids: Sequence[str], accuracy: Accuracy | None, among: Selection) -> dict[str, BestRow]:
    """The best of each of these problems that was swept, by problem."""
    found: dict[str, BestRow] = {}
    for chunk in chunks(ids):
        bests = ranking.best(database, problem_ids=chunk, accuracy=accuracy, among=among)
        found |= {best.problem.id: best for best in bests}
    return found


def _proven(subject: _Subject, best: BestRow, trial: Trial, over_eager: Interval | None) -> Score:
    """The score of a problem with a finalist of its own kernels."""
    low, mid, high = trial.speedup_low or 0.0, trial.speedup or 0.0, trial.speedup_high or math.inf
    verdict = Verdict.FASTER if low > 1 else Verdict.SLOWER if high < 1 else Verdict.SAME
    speedup = Interval(low, mid, high)
    return Score(
        problem=subject.title,
        verdict=verdict,
        ms=trial.median_ms,
        speedup=speedup,
        over_eager=speedup if trial.baseline == "eager" else over_eager,
        baselines=trial.baselines,
        error_ratio=trial.error_ratio,
        accuracy=str(best.accuracy),
        plan=trial.plan,
        plan_data=trial.plan_data,
        sweep=trial.sweep,
    )


@dataclass(frozen=True)
class _Swept:
    """A sweep of a problem without a finalist."""

    id: str
    state: str
    started_at: Any


def _unproven(
    database: Database,
    subject: _Subject,
    best: BestRow | None,
    sweeps: Sequence[_Swept],
    right: Mapping[str, list[Trial]],
) -> Score:
    """The score of a problem without a finalist: by its control, by the latest attempt, or by why all failed."""
    attempt = subject.attempt
    ended = [sweep for sweep in sweeps if sweep.state == "finished"]
    controls = [t for sweep in ended for t in right.get(sweep.id, ()) if t.control and t.median_ms]
    if best and controls:
        control = min(controls, key=lambda trial: trial.median_ms or math.inf)
        kernel_right = any(not trial.control for trial in right.get(control.sweep, ()))
        return _control(
            database, subject, best, control, *_without_winner(database, control.sweep, kernel_right, control)
        )
    if attempt and not any(sweep.started_at > attempt.created_at for sweep in sweeps):
        verdict = Verdict(attempt.outcome)
        return Score(subject.title, verdict, accuracy=attempt.accuracy, reason=attempt.reason)
    if subject.unreadable:
        return Score(subject.title, Verdict.REFUSED, reason=subject.unreadable)
    if best is None or not sweeps:
        return Score(subject.title, Verdict.NOT_SWEPT)
    latest, accuracy = (ended or sweeps)[0], str(best.accuracy)
    if latest.state in ("running", "interrupted"):
        said = "runs now" if latest.state == "running" else "was interrupted: the same `kgen sweep` goes on with it"
        return Score(subject.title, Verdict.NOT_SWEPT, accuracy=accuracy, reason=f"its sweep {said}", sweep=latest.id)
    if latest.state == "failed":
        reason = f"its sweep failed: `kgen show {latest.id[:SHORT]}`"
        return Score(subject.title, Verdict.FAILED, accuracy=accuracy, reason=reason, sweep=latest.id)
    verdict, reason = _without_winner(database, latest.id, bool(right.get(latest.id)))
    return Score(subject.title, verdict, accuracy=accuracy, reason=reason, sweep=latest.id)


def _without_winner(
    database: Database, sweep: str, kernel_right: bool, control: Trial | None = None
) -> tuple[Verdict, str]:
    return without_winner(queries.sweep(database, sweep, leaders=1), kernel_right=kernel_right, control=control)


def without_winner(detail: SweepDetail, *, kernel_right: bool, control: Trial | None = None) -> tuple[Verdict, str]:
    """The verdict on a sweep that timed no kernel of its own in finals, with the reason.

    ``kernel_right`` says that such a kernel was right. A ``control`` that is slower than eager makes the problem
    slower. The default ``control`` is the control among the sweep's leaders.
    """
    control = control or next((trial for trial in detail.leaders if trial.control), None)
    verdict, reason = why_no_winner(detail.row, detail.failures, kernel_right)
    ms, eager = control and control.median_ms, detail.screened_baselines.get("eager")
    if kernel_right or not ms or not eager or eager / ms >= _SLOW_CONTROL:
        return verdict, reason
    return (
        Verdict.SLOWER,
        f"the control, PyTorch's own operators, takes {ms:.3g} ms where eager takes {eager:.3g}; {reason}",
    )


def why_no_winner(row: SweepRow, failures: Sequence[Failures], kernel_right: bool) -> tuple[Verdict, str]:
    """The verdict and the reason as in :func:`without_winner`, but without a look at the control."""
    if kernel_right:
        return Verdict.NOT_JUDGED, "the time was up before the finals; give it a longer --time"
    if failures:
        most, tried = failures[0], sum(group.count for group in failures)
        failed = f"{most.count} of {tried} ended as {most.status}, such as {most.example[:SHORT]}: {most.reason}"
        return Verdict.NONE_RIGHT, f"no candidate with a kernel of its own was right: {failed}"
    if not row.has_kernels:
        return Verdict.NOTHING_TO_TRY, "kgen has no kernel for it; `kgen plan` says why"
    return Verdict.NOT_JUDGED, "no candidate with a kernel of its own was judged; give it a longer --time or --budget"


def _control(
    database: Database, subject: _Subject, best: BestRow, control: Trial, verdict: Verdict, reason: str
) -> Score:
    """The score of a problem where only PyTorch's own operators were right, or were timed in finals."""
    baselines = queries.baselines(database, [control.sweep]).get(control.sweep, {})
    slower, ms = verdict is Verdict.SLOWER, control.median_ms or math.inf
    return Score(
        problem=subject.title,
        verdict=verdict,
        ms=control.median_ms,
        speedup=_exactly(min(baselines.values()) / ms) if slower else None,
        over_eager=_exactly(baselines["eager"] / ms) if slower else None,
        baselines=baselines,
        error_ratio=control.error_ratio,
        accuracy=str(best.accuracy),
        plan=control.plan,
        plan_data=control.plan_data,
        reason=reason,
        sweep=control.sweep,
    )


def _exactly(speedup: float) -> Interval:
    """A speedup of screening, which has no interval."""
    return Interval(speedup, speedup, speedup)


def _swept(connection: Connection, bests: Sequence[BestRow], among: Selection) -> dict[str, list[_Swept]]:
    """The sweeps from which each of ``bests`` was chosen, the latest first, by problem."""
    place = {best.problem.id: (best.environment.id, str(best.accuracy)) for best in bests}
    table = models.Sweep
    columns = (table.id, table.problem_id, table.environment_id, table.accuracy, table.state, table.holder)
    query = select(*columns, table.started_at).where(table.kind == "sweep", *among.conditions(connection))
    found: dict[str, list[_Swept]] = {}
    for chunk in chunks(place):
        for row in connection.execute(query.where(table.problem_id.in_(chunk)).order_by(table.started_at.desc())):
            if place[row.problem_id] == (row.environment_id, row.accuracy):
                found.setdefault(row.problem_id, []).append(_Swept(row.id, state(row), row.started_at))
    return found


def _right(database: Database, swept: Mapping[str, Sequence[_Swept]]) -> dict[str, list[Trial]]:
    """The right candidates of these sweeps, by sweep."""
    found: dict[str, list[Trial]] = {}
    for trial in queries.timed(database, [sweep.id for sweeps in swept.values() for sweep in sweeps]):
        found.setdefault(trial.sweep, []).append(trial)
    return found


def _over_eager(connection: Connection, finals: Sequence[Trial]) -> dict[tuple[str, str], Interval | None]:
    """The speedup over eager of each finalist, by sweep and candidate."""
    wanted = {trial.sweep: {trial.candidate, "eager"} for trial in finals if trial.baseline != "eager"}
    table = models.Timing
    query = select(table.__table__).where(table.depth == Depth.FINAL.value).order_by(table.created_at)
    timings: dict[tuple[str, str], Timing] = {}
    for chunk in chunks(wanted):
        subjects = set().union(*(wanted[sweep] for sweep in chunk))
        for row in connection.execute(query.where(table.sweep_id.in_(chunk), table.subject.in_(subjects))):
            if row.subject in wanted[row.sweep_id]:
                timings[row.sweep_id, row.subject] = rows.to_timing(row)
    found: dict[tuple[str, str], Interval | None] = {}
    for trial in finals:
        eager, own = timings.get((trial.sweep, "eager")), timings.get((trial.sweep, trial.candidate))
        found[trial.sweep, trial.candidate] = _beside_eager(trial, eager, own)
    return found


def _beside_eager(trial: Trial, eager: Timing | None, own: Timing | None) -> Interval | None:
    """A finalist's speedup over eager: the ratio of the shown times, with the interval of their samples."""
    if "eager" not in trial.baselines or not trial.median_ms:
        return None
    mid = trial.baselines["eager"] / trial.median_ms
    if not (eager and own and any(eager.blocks) and any(own.blocks)):
        return Interval(mid, mid, mid)
    ratio = ratio_interval(eager, own, resamples=_RESAMPLES)
    return Interval(mid * ratio.low / ratio.mid, mid, mid * ratio.high / ratio.mid)
