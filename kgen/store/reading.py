"""Parts of the answers that several questions share: problems, environments and trials, read from their rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any, Iterable, Iterator, Mapping

from sqlalchemy import ColumnElement, Connection, Row, Select, Text, cast, func, select
from sqlalchemy.orm import aliased

from kgen.protocol import KNOWN_BASELINES, Depth, Environment, Status
from kgen.store import codec, models, rows
from kgen.store.results import ProblemRow, Trial

_CHUNK = 500  #: values of one ``IN``; databases limit them


def select_problems() -> Select[Any]:
    return select(*(column for column in models.Problem.__table__.columns if column.key != "source"))


def to_problem(row: Row[Any]) -> ProblemRow:
    return ProblemRow(
        id=row.id,
        name=row.name,
        mode=row.mode,
        default_mode=row.default_mode,
        source_hash=row.source_hash,
        path=row.path,
        overrides=row.overrides,
        passed_by=tuple(row.health_passed_by),
    )


def problems_by_id(connection: Connection, ids: Iterable[str]) -> dict[str, ProblemRow]:
    """The problems with these ids, by id."""
    found = in_chunks(connection, select_problems(), models.Problem.id, ids)
    return {row.id: to_problem(row) for row in found}


def environments_by_id(connection: Connection, ids: Iterable[str]) -> dict[str, Environment]:
    """The environments with these ids, by id."""
    table = models.Environment
    found = in_chunks(connection, select(table.__table__), table.id, ids)
    return {row.id: rows.to_environment(row) for row in found}


def select_trials() -> Select[Any]:
    trial, candidate = models.Trial, models.Candidate
    described = ("plan", "params", "rewrites", "kernels", "source_lines", "control")
    columns = [getattr(candidate, name) for name in described]
    plan_data = cast(candidate.plan_data, Text).label("plan_data")  # many trials share a plan, which is read once
    query = select(*trial.__table__.columns, models.Sweep.kind, is_chosen().label("chosen"), *columns, plan_data)
    query = query.join(candidate, candidate.id == trial.candidate_id)
    return query.join(models.Sweep, models.Sweep.id == trial.sweep_id)


def is_chosen() -> ColumnElement[bool]:
    """Whether a trial's candidate is the best of its sweep; a sweep that has not ended has none."""
    return func.coalesce(models.Sweep.best == models.Trial.candidate_id, False)


def right() -> Select[Any]:
    """Right candidates, the fastest first."""
    table = models.Trial
    right = select_trials().where(table.status == Status.OK.value, table.speedup.is_not(None))
    return right.order_by(table.speedup.desc())


def to_trial(row: Row[Any]) -> Trial:
    return Trial(
        sweep=row.sweep_id,
        kind=row.kind,
        candidate=row.candidate_id,
        number=row.number,
        plan=row.plan,
        plan_data=codec.plan_from_text(row.plan_data),
        params=row.params,
        rewrites=tuple(row.rewrites),
        kernels=row.kernels,
        source_lines=row.source_lines,
        control=row.control,
        status=Status(row.status),
        final=row.final,
        tie=row.tie,
        chosen=row.chosen,
        median_ms=_consistent_ms(row),
        speedup=row.speedup,
        speedup_low=row.speedup_low,
        speedup_high=row.speedup_high,
        baseline=row.baseline,
        baselines=row.baselines or {},
        error_ratio=row.error_ratio,
    )


def _consistent_ms(row: Row[Any]) -> float | None:
    """The time of a trial in milliseconds, from the same samples as its speedup.

    Older databases hold another estimate of a finalist's time: the median of its own samples.
    """
    beside = (row.baselines or {}).get(row.baseline)
    return beside / row.speedup if row.final and beside and row.speedup else row.median_ms


def fastest_screened(connection: Connection, sweeps: Iterable[str]) -> dict[str, Trial]:
    """The fastest screened candidate of each sweep that is no finalist and no control, beside its fastest baseline."""
    screened, candidate = aliased(models.Trial), aliased(models.Candidate)
    fastest = (
        select(screened.candidate_id)
        .join(candidate, candidate.id == screened.candidate_id)
        .where(screened.sweep_id == models.Sweep.id, screened.final.is_(False), screened.speedup.is_not(None))
        .where(screened.status == Status.OK.value, candidate.control.is_(False))
        .order_by(screened.speedup.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = select_trials().where(models.Trial.candidate_id == fastest)
    found = {row.sweep_id: to_trial(row) for row in in_chunks(connection, query, models.Sweep.id, sweeps)}
    measured = latest_baselines(connection, found)
    return {sweep: _beside(trial, measured.get(sweep, {})) for sweep, trial in found.items()}


def _beside(trial: Trial, baselines: Mapping[str, float]) -> Trial:
    """A screened trial beside the fastest baseline of its screening. The trial's own figures give the time of this
    baseline.

    A continued sweep has screened its baselines again since, perhaps on a busier machine.
    """
    fastest = min(baselines, key=baselines.__getitem__, default=None)
    if fastest is None or not (trial.median_ms and trial.speedup):
        return trial
    return replace(trial, baselines={fastest: trial.median_ms * trial.speedup}, baseline=fastest)


def latest_baselines(connection: Connection, sweeps: Iterable[str]) -> dict[str, dict[str, float]]:
    """The latest medians of the baselines' screening in each sweep, in milliseconds."""
    table = models.Timing
    query = select(table.sweep_id, table.subject, table.median_ms).order_by(table.created_at)
    query = query.where(
        table.subject.in_(KNOWN_BASELINES), table.median_ms.is_not(None), table.depth == Depth.SCREEN.value
    )
    found: dict[str, dict[str, float]] = {}
    for row in in_chunks(connection, query, table.sweep_id, sweeps):
        found.setdefault(row.sweep_id, {})[row.subject] = row.median_ms
    return {sweep: {name: of[name] for name in KNOWN_BASELINES if name in of} for sweep, of in found.items()}


def in_chunks(connection: Connection, query: Select[Any], column: Any, values: Iterable[str]) -> Iterator[Row[Any]]:
    """The rows of ``query`` whose ``column`` is one of ``values``, in chunks of values."""
    for chunk in chunks(values):
        yield from connection.execute(query.where(column.in_(chunk)))


def chunks(values: Iterable[str]) -> Iterator[list[str]]:
    """The values in lists that fit one ``IN`` each."""
    remaining = iter(values)
    while chunk := list(islice(remaining, _CHUNK)):
        yield chunk
