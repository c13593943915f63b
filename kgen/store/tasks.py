"""Kernel tasks in the database: written one result at a time, found again by any sweep, and listed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Row, func, select

from kgen.protocol import Status, __version__
from kgen.store import codec, models, rows
from kgen.store.database import Database, insertion
from kgen.store.kernel_task import Measured, TaskKey, Variant
from kgen.store.reading import chunks
from kgen.store.selection import Selection


@dataclass(frozen=True)
class NewTask:
    """A task of a sweep: its label for people, the least time that the device allows, and its steps in the best
    plan."""

    key: TaskKey
    label: str
    limit_ms: float | None
    uses: int


@dataclass(frozen=True)
class StoredResult(Measured):
    """A result read from the database, with the id of its row."""

    id: str = ""


@dataclass(frozen=True)
class Step:
    """One step of an assembled candidate: its name (``k3``, an operator), its task, the chosen result, and the reason
    for a library call."""

    name: str
    task: str
    result: str | None
    reason: str = ""


@dataclass(frozen=True)
class StepRow:
    """A step of a candidate as it is shown.

    ``ms`` is the chosen variant's time alone, ``share`` its part of the sum over all steps, ``limit_ms`` the least time
    that the device allows. ``reason`` says why the step is a library call.
    """

    number: int
    name: str
    task: str
    label: str
    variant: Variant | None
    ms: float | None
    share: float | None
    limit_ms: float | None
    error: float | None
    reason: str

    @property
    def of_limit(self) -> float | None:
        """The share of the roofline: 1.0 is as fast as the device allows."""
        return _of_limit(self.limit_ms, self.ms)


@dataclass(frozen=True)
class TaskRow:
    """A task as it is listed: where it runs, how many variants were tried and right, and the fastest of them."""

    id: str
    label: str
    device: str
    accuracy: str
    sweeps: int
    tried: int
    right: int
    best: Variant | None
    ms: float | None
    library_ms: float | None
    limit_ms: float | None
    created_at: datetime

    @property
    def of_limit(self) -> float | None:
        """The share of the roofline that the fastest variant reaches."""
        return _of_limit(self.limit_ms, self.ms)


def _of_limit(limit_ms: float | None, ms: float | None) -> float | None:
    return limit_ms / ms if ms and limit_ms is not None else None


# Written ---------------------------------------------------------------------------------------------------------


def add_tasks(database: Database, sweep: str, tasks: Sequence[NewTask]) -> None:
    """Store the tasks of a sweep; known ones stay unchanged."""
    if not tasks:
        return
    moment = rows.now()
    found = [
        {
            "id": t.key.id,
            "label": t.label,
            "device_type": t.key.device_type,
            "device": t.key.device,
            "accuracy": t.key.accuracy,
            "limit_ms": t.limit_ms,
            "created_at": moment,
            "identity": t.key.to_json(),
        }
        for t in tasks
    ]
    with database.connections.write() as connection:
        connection.execute(insertion(connection, models.Task).on_conflict_do_nothing(), found)
        used = [{"sweep_id": sweep, "task_id": t.key.id, "uses": t.uses} for t in tasks]
        connection.execute(insertion(connection, models.SweepTask).on_conflict_do_nothing(), used)


def add_result(database: Database, task: str, environment: str, measured: Measured) -> StoredResult:
    """Store the result of a variant, in one transaction. Returns the result with its id."""
    stored = StoredResult(**vars(measured), id=rows.new_id())
    row = {
        "id": stored.id,
        "task_id": task,
        "environment_id": environment,
        "schedule": measured.variant.schedule,
        "text_hash": measured.text,
        "status": measured.status.value,
        "cold_ms": measured.cold_ms,
        "warm_ms": measured.warm_ms,
        "error": measured.error,
        "allowed": measured.allowed,
        "kgen": __version__,
        "created_at": rows.now(),
        "reason": codec.printable(measured.reason),
        "params": codec.plain(dict(measured.variant.params)),
    }
    with database.connections.write() as connection:
        connection.execute(insertion(connection, models.TaskResult), row)
    return stored


def add_steps(database: Database, candidate: str, steps: Sequence[Step]) -> None:
    """Store the steps of a stored candidate; known ones stay unchanged."""
    found = [
        {
            "candidate_id": candidate,
            "number": number,
            "task_id": step.task,
            "result_id": step.result,
            "name": step.name,
            "reason": step.reason,
        }
        for number, step in enumerate(steps)
    ]
    if found:
        with database.connections.write() as connection:
            connection.execute(insertion(connection, models.CandidateTask).on_conflict_do_nothing(), found)


# Read ------------------------------------------------------------------------------------------------------------


def known(database: Database, tasks: Iterable[str], environment: str) -> dict[str, list[StoredResult]]:
    """The results of these tasks in an environment, by task, the latest first."""
    table = models.TaskResult
    query = (
        select(table.__table__).where(table.environment_id == environment).order_by(table.created_at.desc(), table.id)
    )
    found: dict[str, list[StoredResult]] = {}
    with database.connections.read() as connection:
        for chunk in chunks(tasks):
            for row in connection.execute(query.where(table.task_id.in_(chunk))):
                found.setdefault(row.task_id, []).append(_to_result(row))
    return found


def _to_result(row: Row) -> StoredResult:
    return StoredResult(
        Variant.of(row.schedule, row.params),
        row.text_hash,
        Status(row.status),
        row.reason,
        row.cold_ms,
        row.warm_ms,
        row.error,
        row.allowed,
        row.id,
    )


def steps(database: Database, candidate: str) -> list[StepRow]:
    """The steps of a candidate in their order; empty for a candidate that was not assembled."""
    step, task, result = models.CandidateTask, models.Task, models.TaskResult
    query = (
        select(
            step.number,
            step.name,
            step.task_id,
            step.reason,
            task.label,
            task.limit_ms,
            result.schedule,
            result.params,
            result.cold_ms,
            result.warm_ms,
            result.error,
        )
        .join(task, task.id == step.task_id)
        .outerjoin(result, result.id == step.result_id)
        .where(step.candidate_id == candidate)
        .order_by(step.number)
    )
    with database.connections.read() as connection:
        found = connection.execute(query).all()
    times = [_ms(row) for row in found]
    total = sum(filter(None, times))
    return [
        StepRow(
            row.number,
            row.name,
            row.task_id,
            row.label,
            Variant.of(row.schedule, row.params) if row.schedule is not None else None,
            ms,
            ms / total if ms and total else None,
            row.limit_ms,
            row.error,
            row.reason,
        )
        for row, ms in zip(found, times)
    ]


def _ms(row: Row) -> float | None:
    return None if row.cold_ms is None or row.warm_ms is None else (row.cold_ms + row.warm_ms) / 2


def listed(database: Database, *, name: str | None = None, among: Selection, limit: int | None = None) -> list[TaskRow]:
    """Tasks of the selected sweeps, the slowest first. Each task has the figures of its fastest variant in any
    environment."""
    task, used, result, sweep, problem = models.Task, models.SweepTask, models.TaskResult, models.Sweep, models.Problem
    with database.connections.read() as connection:
        conditions: list[ColumnElement[bool]] = [*among.conditions(connection)]
        if name is not None:
            conditions.append(sweep.problem_id.in_(select(problem.id).where(problem.name == name)))
        uses = (
            select(used.task_id, func.count().label("sweeps"))
            .join(sweep, sweep.id == used.sweep_id)
            .where(*conditions)
            .group_by(used.task_id)
        ).subquery()
        tasks = connection.execute(select(task.__table__, uses.c.sweeps).join(uses, uses.c.task_id == task.id)).all()
        tried: dict[str, list[StoredResult]] = {}
        for chunk in chunks(row.id for row in tasks):
            for row in connection.execute(select(result.__table__).where(result.task_id.in_(chunk))):
                tried.setdefault(row.task_id, []).append(_to_result(row))
    found = [_listed(row, tried.get(row.id, [])) for row in tasks]
    return sorted(found, key=lambda row: (-(row.ms or 0.0), row.label, row.id))[:limit]


def _listed(row: Row, results: Sequence[StoredResult]) -> TaskRow:
    right = sorted((r for r in results if r.ms is not None), key=lambda r: r.ms or 0.0)
    library = next((r.ms for r in right if not r.variant.schedule), None)
    own = next((r for r in right if r.variant.schedule), right[0] if right else None)
    return TaskRow(
        row.id,
        row.label,
        row.device,
        row.accuracy,
        row.sweeps,
        len(results),
        len(right),
        own and own.variant,
        own and own.ms,
        library,
        row.limit_ms,
        row.created_at,
    )
