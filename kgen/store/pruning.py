"""Pruning: drops whole sweeps, or their failed candidates, with all rows that nothing else uses.

Rows in use stay. An evaluation that another sweep took over keeps its samples, and a candidate with an evaluation keeps
its source. Filters drop neither a running sweep nor the sweep with the best candidate of its problem. A preview drops
the rows and rolls back, so that it always agrees with the real pruning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, CursorResult, Delete, Update, delete, exists, select, update

from kgen.protocol import Status
from kgen.store import attempts, models, modules, queries, reading, requests
from kgen.store.database import Database
from kgen.store.results import SweepRow
from kgen.store.selection import Selection


@dataclass(frozen=True)
class Pruned:
    """The result of a pruning or its preview: ``rows`` counts dropped rows by table.

    ``sweeps`` are dropped whole. Sweeps in ``of_failed`` only lose their failed candidates. Sweeps in ``kept`` were
    selected, but have the best candidate of their problem. ``candidates`` and ``logs`` name files beside the database.
    """

    sweeps: tuple[SweepRow, ...]
    of_failed: tuple[SweepRow, ...]
    kept: tuple[SweepRow, ...]
    rows: dict[str, int]
    candidates: tuple[str, ...]
    logs: tuple[str, ...]

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to drop."""
        return not any(self.rows.values())


class _Undone(Exception):
    """Raised to roll back a preview."""


def prune(
    database: Database,
    *,
    name: str | None = None,
    among: Selection,
    failed: bool = False,
    even_best: bool = False,
    really: bool = False,
) -> Pruned:
    """Drop the selected sweeps or, with ``failed``, their failed candidates. Without ``really`` this is a preview.

    Sweeps with the fastest candidate of their problem, environment and class stay, unless ``even_best``.
    """
    selected = [row for row in queries.sweeps(database, name=name, among=among) if row.state != "running"]
    best = set() if failed or even_best else _with_the_best(database)
    kept = tuple(row for row in selected if row.id in best)
    dropped = tuple(row for row in selected if row.id not in best and (row.failed or not failed))
    work = _Work()
    try:
        with database.connections.write() as connection:
            (work.drop_failed if failed else work.drop_sweeps)(connection, [row.id for row in dropped])
            work.drop_attempts(connection, attempts.conditions(name, among))
            work.drop_modules(connection, modules.conditions(name, among))
            if not failed:
                work.drop_requests(connection, requests.conditions(name, among))
            work.drop_unused(connection)
            if not really:
                raise _Undone
    except _Undone:
        pass
    if really and database.connections.is_sqlite:
        database.connections.shrink()
    whole, of_failed = ((), dropped) if failed else (dropped, ())
    return Pruned(whole, of_failed, kept, work.rows, tuple(work.candidates), tuple(work.logs))


def _with_the_best(database: Database) -> set[str]:
    """For each problem, environment and class of accuracy the sweep with the fastest finalist that is no control."""
    sweep, trial, candidate = models.Sweep, models.Trial, models.Candidate
    query = (
        select(sweep.problem_id, sweep.environment_id, sweep.accuracy, sweep.id)
        .join(trial, trial.sweep_id == sweep.id)
        .join(candidate, candidate.id == trial.candidate_id)
        .where(sweep.kind == "sweep", trial.final.is_(True), trial.status == Status.OK.value)
        .where(candidate.control.is_(False))
        .order_by(trial.speedup, trial.sweep_id)
    )
    with database.connections.read() as connection:
        # A dict keeps the last value of equal keys: here the fastest.
        return set({tuple(place): identity for *place, identity in connection.execute(query)}.values())


class _Work:
    """One pruning, which counts the dropped rows."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.candidates: list[str] = []
        self.logs: list[str] = []

    def drop_sweeps(self, connection: Connection, sweeps: Sequence[str]) -> None:
        """Drop sweeps with their trials, rejections and timings."""
        self._release(connection, sweeps)
        self._delete_in(connection, models.Timing, models.Timing.sweep_id, sweeps)
        self._delete_in(connection, models.Trial, models.Trial.sweep_id, sweeps)
        self._delete_in(connection, models.Rejection, models.Rejection.sweep_id, sweeps)
        self._delete_in(connection, models.SweepTask, models.SweepTask.sweep_id, sweeps)
        self._delete_in(connection, models.Proposal, models.Proposal.sweep_id, sweeps)
        self._delete_in(connection, models.Sweep, models.Sweep.id, sweeps)

    def drop_failed(self, connection: Connection, sweeps: Sequence[str]) -> None:
        """Drop the trials that failed in these sweeps."""
        table = models.Trial
        self._delete_in(connection, table, table.sweep_id, sweeps, table.status.not_in(queries.NO_FAILURES))

    def drop_attempts(self, connection: Connection, which: Sequence[ColumnElement[bool]]) -> None:
        """Attempts at problems that came to no sweep: the problems may be tried again."""
        self._run(connection, models.Attempt, delete(models.Attempt).where(*which))

    def drop_modules(self, connection: Connection, which: Sequence[ColumnElement[bool]]) -> None:
        """Modules of users' programs, which are searched again."""
        self._run(connection, models.Module, delete(models.Module).where(*which))

    def drop_requests(self, connection: Connection, which: Sequence[ColumnElement[bool]]) -> None:
        """Requests to the service that have their answer: they are judged again where they come again."""
        self._run(connection, models.Request, delete(models.Request).where(*which))

    def drop_unused(self, connection: Connection) -> None:
        """Drop evaluations without a trial, tasks without a sweep, then candidates, problems and environments that no
        row names."""
        evaluation, trial, candidate, sweep = models.Evaluation, models.Trial, models.Candidate, models.Sweep
        unused = ~exists().where(trial.evaluation_id == evaluation.id)
        found = connection.execute(select(evaluation.id, evaluation.log).where(unused)).all()
        ids = [row.id for row in found]
        self.logs += [row.log for row in found if row.log]
        self._delete_in(connection, models.Timing, models.Timing.evaluation_id, ids)
        self._delete_in(connection, evaluation, evaluation.id, ids)
        chosen = exists().where(sweep.best == candidate.id)
        judged = exists().where(evaluation.candidate_id == candidate.id)
        self.candidates += connection.execute(select(candidate.id).where(~judged, ~chosen)).scalars()
        self._drop_tasks(connection)
        self._delete_in(connection, models.Source, models.Source.candidate_id, self.candidates)
        self._delete_in(connection, candidate, candidate.id, self.candidates)
        for table, name in ((models.Problem, "problem_id"), (models.Environment, "environment_id")):
            users = [user for user in (sweep, evaluation, models.TaskResult) if hasattr(user, name)]
            named = (exists().where(getattr(user, name) == table.id) for user in users)
            self._run(connection, table, delete(table).where(*(~user for user in named)))

    def _drop_tasks(self, connection: Connection) -> None:
        """Drop the steps of dropped candidates, and tasks that no sweep has, with their results."""
        step, task, used, result = models.CandidateTask, models.Task, models.SweepTask, models.TaskResult
        self._delete_in(connection, step, step.candidate_id, self.candidates)
        for table in (step, result):
            unused = ~exists().where(used.task_id == table.task_id)
            self._run(connection, table, delete(table).where(unused))
        self._run(connection, task, delete(task).where(~exists().where(used.task_id == task.id)))

    def _release(self, connection: Connection, sweeps: Sequence[str]) -> None:
        """Give the samples of an evaluation to another sweep that took it over."""
        timing, trial = models.Timing, models.Trial
        dropped = set(sweeps)
        users = select(timing.id, trial.sweep_id).join(trial, trial.evaluation_id == timing.evaluation_id)
        for chunk in reading.chunks(sweeps):
            found = connection.execute(users.where(timing.sweep_id.in_(chunk)))
            users_left = {row.id: row.sweep_id for row in found if row.sweep_id not in dropped}
            for identity, user in users_left.items():
                connection.execute(update(timing).where(timing.id == identity).values(sweep_id=user))

    def _delete_in(
        self,
        connection: Connection,
        table: type[models.Base],
        column: Any,
        values: Iterable[str],
        *conditions: ColumnElement[bool],
    ) -> None:
        """Delete the rows whose ``column`` is one of ``values``."""
        for chunk in reading.chunks(values):
            self._run(connection, table, delete(table).where(column.in_(chunk), *conditions))

    def _run(self, connection: Connection, table: type[models.Base], statement: Delete | Update) -> None:
        done: CursorResult[Any] = connection.execute(statement)
        name = table.__tablename__
        self.rows[name] = self.rows.get(name, 0) + done.rowcount
