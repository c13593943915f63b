"""Comparisons of two candidates, two sweeps, or two environments.

    candidates     on each problem, in each environment and class of accuracy where both were timed
    sweeps         of one problem: the best of each, the baselines, and the candidates that both timed
    environments   the latest sweeps in each, of every problem and class of accuracy that was swept in both

Raw samples decide, not stored figures. Timings of one session are interleaved, and their ratio is taken round by round.
Timings of two sessions on one machine are compared by their speedups over eager in the same session. A difference in
the speed of the whole machine then cancels out. Where one session has no eager, the times themselves are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Iterable, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, Row, and_, or_, select
from sqlalchemy.orm import aliased

from kgen.candidate import SHORT
from kgen.errors import InputError, NotFoundError
from kgen.protocol import BASELINES, KNOWN_BASELINES, Accuracy, Depth, Environment, Status, Timing
from kgen.protocol.statistics import Interval, median_ms, quotient, ratio_interval, verdict
from kgen.store import models, queries, reading, rows
from kgen.store.database import Database
from kgen.store.results import Compared, Comparison, ProblemRow, SweepRow

_EAGER = BASELINES[0]

#: The relations of two timings.
INTERLEAVED, BESIDE_EAGER, APART = "interleaved", "each beside eager", "apart"


@dataclass(frozen=True)
class _Taken:
    """One timing, with its sweep, problem, environment and accuracy class."""

    sweep: str
    problem: str
    environment: str
    accuracy: Accuracy
    created_at: datetime
    timing: Timing

    @property
    def where(self) -> tuple[str, str, Accuracy]:
        """The place of a timing; only times of one place are compared."""
        return self.problem, self.environment, self.accuracy

    @property
    def session(self) -> tuple[str, str]:
        """The key that interleaved timings share."""
        return self.sweep, self.timing.session


def candidates(database: Database, a: str, b: str, limit: int | None = None) -> list[Comparison]:
    """Candidate ``b`` against candidate ``a``, in each place where both were right and timed.

    Raises :class:`NotFoundError` if there is no such place.
    """
    with database.connections.read() as connection:
        taken = {one: _by_place(_taken(connection, models.Timing.subject == one)) for one in (a, b)}
        places = [place for place in taken[a] if place in taken[b]][:limit]
        if not places:
            pair = f"{a[:SHORT]} and {b[:SHORT]}"
            raise NotFoundError(f"{pair} were never both timed on one problem in one environment and class of accuracy")
        problems = reading.problems_by_id(connection, {place[0] for place in places})
        environments = reading.environments_by_id(connection, {place[1] for place in places})
        eager = _Eager(connection)
        found = []
        for place in places:
            problem, environment, accuracy = place
            pair = max(((x, y) for x in taken[a][place] for y in taken[b][place]), key=_closeness)
            found.append(_compare("candidate", *pair, problems[problem], accuracy, environments[environment], eager))
    return found


def sweeps(database: Database, a: str, b: str, limit: int | None = None) -> list[Comparison]:
    """Sweep ``b`` against sweep ``a``: their best, the baselines, and up to ``limit`` candidates that both timed.

    Raises :class:`InputError` for different problems or classes of accuracy, and :class:`NotFoundError` if they have
    nothing in common.
    """
    with database.connections.read() as connection:
        first, second = (queries.sweep_row(connection, one, database.name) for one in (a, b))
        if first.problem.id != second.problem.id:
            raise InputError(
                f"{a} is of {first.problem.title} in {first.problem.mode} mode, {b} of {second.problem.title} in "
                f"{second.problem.mode} mode: times of different problems are not compared"
            )
        if first.accuracy is not second.accuracy:
            raise InputError(f"{a} is of class {first.accuracy}, {b} of {second.accuracy}: they are not compared")
        found = _sweeps(connection, first, second, limit)
    if not found:
        raise NotFoundError(f"{a} and {b} have timed nothing in common, and at least one of them has no best")
    return found


def environments(database: Database, a: str, b: str, limit: int | None = None) -> list[Comparison]:
    """Environment ``b`` against environment ``a``, problem by problem, with up to ``limit`` candidates of each.

    Raises :class:`NotFoundError` if no problem was swept in both.
    """
    with database.connections.read() as connection:
        latest = {one: _latest(connection, one) for one in (a, b)}
        shared = [place for place in latest[a] if place in latest[b]]
        if not shared:
            raise NotFoundError(f"nothing was swept in both environments, {a} and {b}")
        found = []
        for place in shared:
            pair = (queries.sweep_row(connection, latest[one][place], database.name) for one in (a, b))
            found += _sweeps(connection, *pair, limit)
    return found


def _sweeps(connection: Connection, a: SweepRow, b: SweepRow, limit: int | None) -> list[Comparison]:
    """The comparisons that two sweeps of one problem allow."""
    first, second = _Subjects(connection, a.id), _Subjects(connection, b.id)
    pairs: list[tuple[str, str, str]] = []
    if a.best and b.best:
        pairs.append(("best", a.best.candidate, b.best.candidate))
    pairs += [(name, name, name) for name in KNOWN_BASELINES]
    pairs += [("candidate", common, common) for common in _common(connection, a.id, b.id, limit)]
    eager = _Eager(connection)
    found = []
    for what, subject_a, subject_b in dict.fromkeys(pairs):
        one, other = first.get(subject_a), second.get(subject_b)
        if one and other:
            same = a.environment if a.environment.id == b.environment.id else None
            found.append(_compare(what, one, other, a.problem, a.accuracy, same, eager))
    return found


def _compare(
    what: str,
    a: _Taken,
    b: _Taken,
    problem: ProblemRow,
    accuracy: Accuracy,
    environment: Environment | None,
    eager: _Eager,
) -> Comparison:
    """One comparison. A ``ratio`` above 1 means that ``b`` is faster.

    The time of ``b`` is the time of ``a`` divided by the ratio: all figures come from the same samples. Between two
    environments (``environment`` is ``None``) times are compared without eager.
    """
    beside = (eager.of(a), eager.of(b)) if environment and a.timing.subject != _EAGER else (None, None)
    if a.session == b.session:
        how, ratio = INTERLEAVED, ratio_interval(a.timing, b.timing)
    elif beside[0] and beside[1]:
        how = BESIDE_EAGER
        ratio = quotient(ratio_interval(a.timing, beside[0]), ratio_interval(b.timing, beside[1]))
    else:
        how, ratio = APART, ratio_interval(a.timing, b.timing)
    first = median_ms(a.timing)
    sides = _side(a, first), _side(b, first / ratio.mid)
    return Comparison(problem, accuracy, environment, what, *sides, ratio, _verdict(a, b, ratio), how)


def _verdict(a: _Taken, b: _Taken, ratio: Interval) -> str:
    """The verdict on ``b``. Equal samples mean the same."""
    return "same" if a.timing == b.timing else verdict(ratio)


def _side(taken: _Taken, ms: float) -> Compared:
    return Compared(taken.timing.subject, taken.sweep, ms)


class _Eager:
    """The timings of eager PyTorch, session by session."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[tuple[str, str], Timing | None] = {}

    def of(self, taken: _Taken) -> Timing | None:
        """Eager's timing in the session of ``taken``; ``None`` where it has none."""
        key = taken.session
        if key not in self._known:
            table = models.Timing
            asked = (table.sweep_id == key[0], table.subject == _EAGER, table.session == key[1])
            self._known[key] = next((item.timing for item in _taken(self._connection, *asked)), None)
        return self._known[key]


def _closeness(pair: tuple[_Taken, _Taken]) -> tuple[bool, bool, datetime]:
    """The quality of a pair for comparison: interleaved first, then both final, then the latest."""
    a, b = pair
    final = a.timing.depth is Depth.FINAL and b.timing.depth is Depth.FINAL
    return a.session == b.session, final, min(a.created_at, b.created_at)


def _by_place(taken: Iterable[_Taken]) -> dict[tuple[str, str, Accuracy], list[_Taken]]:
    found: dict[tuple[str, str, Accuracy], list[_Taken]] = {}
    for item in taken:
        found.setdefault(item.where, []).append(item)
    return found


class _Subjects:
    """The timings of a sweep, read on request."""

    def __init__(self, connection: Connection, sweep: str) -> None:
        self._connection, self._sweep = connection, sweep

    def get(self, subject: str) -> _Taken | None:
        """The latest final timing of a subject, else its latest screening; ``None`` where there is none."""
        found = self._own(subject) or self._taken_over(subject)
        return max(found, key=lambda item: (item.timing.depth is Depth.FINAL, item.created_at), default=None)

    def _own(self, subject: str) -> list[_Taken]:
        return _taken(self._connection, models.Timing.sweep_id == self._sweep, models.Timing.subject == subject)

    def _taken_over(self, subject: str) -> list[_Taken]:
        trial = models.Trial
        judged = select(trial.evaluation_id).where(trial.sweep_id == self._sweep, trial.candidate_id == subject)
        return _taken(self._connection, models.Timing.evaluation_id.in_(judged))


def _taken(connection: Connection, *conditions: ColumnElement[bool]) -> list[_Taken]:
    """Timings with samples, of baselines and right candidates. A candidate that failed later does not count."""
    table, sweep, trial = models.Timing, models.Sweep, models.Trial
    query = (
        select(*table.__table__.columns, sweep.problem_id)
        .join(sweep, sweep.id == table.sweep_id)
        .outerjoin(trial, and_(trial.sweep_id == table.sweep_id, trial.candidate_id == table.subject))
        .where(*conditions, table.median_ms.is_not(None))
        .where(or_(trial.status == Status.OK.value, table.subject.in_(KNOWN_BASELINES)))
    )
    return [_to_taken(row) for row in connection.execute(query)]


def _to_taken(row: Row[Any]) -> _Taken:
    place = (row.sweep_id, row.problem_id, row.environment_id, Accuracy(row.accuracy))
    return _Taken(*place, row.created_at, rows.to_timing(row))


def _common(connection: Connection, a: str, b: str, limit: int | None) -> Sequence[str]:
    """Right candidates that two sweeps both timed themselves: finalists of ``a`` first, then its fastest."""
    one, other = aliased(models.Trial), aliased(models.Trial)
    query = (
        select(one.candidate_id)
        .join(other, and_(other.sweep_id == b, other.candidate_id == one.candidate_id))
        .where(one.sweep_id == a, one.status == Status.OK.value, other.status == Status.OK.value)
        .where(or_(one.evaluation_id != other.evaluation_id, and_(one.final.is_(True), other.final.is_(True))))
        .order_by(one.final.desc(), one.speedup.desc())
        .limit(limit)
    )
    return connection.execute(query).scalars().all()


def _latest(connection: Connection, environment: str) -> Mapping[tuple[str, str], str]:
    """The latest finished sweep of each problem and class of accuracy in an environment."""
    table = models.Sweep
    query = (
        select(table.id, table.problem_id, table.accuracy)
        .where(table.environment_id == environment, table.kind == "sweep", table.state == "finished")
        .order_by(table.started_at.desc(), table.id)
    )
    found: dict[tuple[str, str], str] = {}
    for row in connection.execute(query):
        found.setdefault((row.problem_id, row.accuracy), row.id)
    return found
