"""The read side: one function for each question of the command line, with plain dataclasses as answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, Iterable, Mapping, Sequence

from sqlalchemy import Connection, Row, Select, func, select

from kgen.candidate import Plan
from kgen.errors import NotFoundError
from kgen.problems.problem import Problem, sizes
from kgen.protocol import Accuracy, Depth, Status, Timing, read_product
from kgen.store import models, proposals, rows
from kgen.store.database import Database
from kgen.store.reading import (
    environments_by_id,
    fastest_screened,
    in_chunks,
    latest_baselines,
    problems_by_id,
    right,
    select_problems,
    select_trials,
    to_problem,
    to_trial,
)
from kgen.store.results import (
    CandidateDetail,
    Failures,
    Judgement,
    Known,
    ProblemRow,
    Rejections,
    SweepDetail,
    SweepRow,
    Trial,
)
from kgen.store.selection import EVERY, Selection, state

NO_FAILURES = (Status.OK.value, Status.DUPLICATE.value)  #: statuses of candidates that did not fail


# Problems ------------------------------------------------------------------------------------------------------


def problems(database: Database, *, name: str | None = None, source_hash: str | None = None) -> list[ProblemRow]:
    """The problems of the database, the most recently swept first."""
    table = models.Problem
    last_swept = select(func.max(models.Sweep.started_at)).where(models.Sweep.problem_id == table.id).scalar_subquery()
    query = select_problems().order_by(last_swept.desc().nulls_last())
    if name is not None:
        query = query.where(table.name == name)
    if source_hash is not None:
        query = query.where(table.source_hash == source_hash)
    with database.connections.read() as connection:
        return [to_problem(row) for row in connection.execute(query)]


def problem(database: Database, problem_id: str) -> Problem:
    """The problem itself, with its overrides in its source."""
    with database.connections.read() as connection:
        row = connection.execute(select(models.Problem.__table__).where(models.Problem.id == problem_id)).one()
    return Problem(row.name, row.path, row.source, tuple(row.overrides.items()), row.mode, row.mode)


# Sweeps --------------------------------------------------------------------------------------------------------


def sweeps(
    database: Database, *, name: str | None = None, among: Selection = EVERY, limit: int | None = None
) -> list[SweepRow]:
    """The sweeps of the database, or of the problems with this name, the latest first."""
    query = select(models.Sweep.__table__).order_by(models.Sweep.started_at.desc()).limit(limit)
    if name is not None:
        query = query.where(models.Sweep.problem_id.in_(select(models.Problem.id).where(models.Problem.name == name)))
    with database.connections.read() as connection:
        return _to_sweeps(connection, connection.execute(query.where(*among.conditions(connection))).all())


def sweep(database: Database, sweep_id: str, leaders: int | None = None) -> SweepDetail:
    """One sweep with its best ``leaders`` (controls among them), its failures and its rejections."""
    with database.connections.read() as connection:
        row = sweep_row(connection, sweep_id, database.name)
        of_sweep = models.Trial.sweep_id == sweep_id
        taken_over = select(func.count()).where(of_sweep, models.Trial.taken_over.is_(True))
        fastest = right().where(of_sweep).order_by(None)
        fastest = fastest.order_by(models.Trial.final.desc(), models.Trial.speedup.desc()).limit(leaders)
        trials = tuple(to_trial(row) for row in connection.execute(fastest))
        source = select(models.Problem.source).where(models.Problem.id == row.problem.id)
        return SweepDetail(
            row=row,
            sizes=sizes(connection.execute(source).scalar_one()),
            baselines=next((trial.baselines for trial in trials if trial.final), {}),
            screened_baselines=latest_baselines(connection, [sweep_id]).get(sweep_id, {}),
            leaders=trials,
            failures=_failures(connection, sweep_id),
            rejections=_rejections(connection, [sweep_id]),
            taken_over=connection.execute(taken_over).scalar_one(),
        )


def sweep_row(connection: Connection, sweep_id: str, name: str) -> SweepRow:
    """One sweep as a listing has it; :class:`NotFoundError` where the database called ``name`` has none."""
    found = connection.execute(select(models.Sweep.__table__).where(models.Sweep.id == sweep_id)).all()
    if not found:
        raise NotFoundError(f"no sweep {sweep_id} in {name}")
    return _to_sweeps(connection, found)[0]


def _to_sweeps(connection: Connection, found: Sequence[Row[Any]]) -> list[SweepRow]:
    named = problems_by_id(connection, {row.problem_id for row in found})
    environments = environments_by_id(connection, {row.environment_id for row in found})
    counts = _counts(connection, [row.id for row in found])
    chosen = _chosen(connection, [row.id for row in found if row.best])
    chosen |= fastest_screened(connection, [row.id for row in found if row.id not in chosen])
    return [
        SweepRow(
            id=row.id,
            kind=row.kind,
            problem=named[row.problem_id],
            environment=environments[row.environment_id],
            accuracy=Accuracy(row.accuracy),
            device=row.device,
            state=state(row),
            combinations=row.combinations,
            budget=row.budget,
            started_at=row.started_at,
            seconds=row.seconds,
            arguments=row.arguments,
            counts=counts.get(row.id, {}),
            best=chosen.get(row.id),
        )
        for row in found
    ]


def _counts(connection: Connection, ids: Sequence[str]) -> dict[str, dict[Status, int]]:
    """The number of candidates of each sweep by status."""
    table = models.Trial
    query: Select[Any] = select(table.sweep_id, table.status, func.count().label("number"))
    query = query.group_by(table.sweep_id, table.status)
    counts: dict[str, dict[Status, int]] = {}
    for row in in_chunks(connection, query, table.sweep_id, ids):
        counts.setdefault(row.sweep_id, {})[Status(row.status)] = row.number
    return counts


def _chosen(connection: Connection, ids: Sequence[str]) -> dict[str, Trial]:
    """The best candidates that these sweeps chose, by sweep."""
    query = select_trials().where(models.Sweep.best == models.Trial.candidate_id)
    return {row.sweep_id: to_trial(row) for row in in_chunks(connection, query, models.Sweep.id, ids)}


def _failures(connection: Connection, sweep_id: str) -> tuple[Failures, ...]:
    trial = models.Trial
    groups = (
        select(trial.status, func.count().label("number"), func.min(trial.number).label("first"))
        .where(trial.sweep_id == sweep_id, trial.status.not_in(NO_FAILURES))
        .group_by(trial.status)
        .subquery()
    )
    query = (
        select(groups.c.status, groups.c.number, trial.candidate_id, models.Evaluation.reason)
        .join(trial, (trial.sweep_id == sweep_id) & (trial.number == groups.c.first))
        .join(models.Evaluation, models.Evaluation.id == trial.evaluation_id)
        .order_by(groups.c.number.desc(), groups.c.status)
    )
    return tuple(Failures(Status(status), *rest) for status, *rest in connection.execute(query))


def _rejections(connection: Connection, sweeps: Iterable[str]) -> tuple[Rejections, ...]:
    """The rejections of these sweeps by constraint, the most frequent first. A combination counts in each sweep."""
    table = models.Rejection
    query: Select[Any] = select(table.constraint_name, func.count(), func.min(table.reason))
    found: dict[str, Rejections] = {}
    for name, count, reason in in_chunks(connection, query.group_by(table.constraint_name), table.sweep_id, sweeps):
        known = found.get(name)
        found[name] = replace(known, count=known.count + count) if known else Rejections(name, count, reason)
    return tuple(sorted(found.values(), key=lambda group: (-group.count, group.constraint)))


def reasons(database: Database, sweep_id: str, candidates: Iterable[str]) -> dict[str, str]:
    """The reason of each of these candidates' statuses, in one line each."""
    trial = models.Trial
    query = select(trial.candidate_id, models.Evaluation.reason)
    query = query.join(models.Evaluation, models.Evaluation.id == trial.evaluation_id).where(trial.sweep_id == sweep_id)
    with database.connections.read() as connection:
        return {row.candidate_id: row.reason for row in in_chunks(connection, query, trial.candidate_id, candidates)}


def of_status(database: Database, sweep_id: str, status: Status, limit: int | None = None) -> list[Trial]:
    """The candidates of a sweep with this status, in the order judged."""
    table = models.Trial
    query = select_trials().where(table.sweep_id == sweep_id, table.status == status.value)
    with database.connections.read() as connection:
        return [to_trial(row) for row in connection.execute(query.order_by(table.number).limit(limit))]


# Over several sweeps ---------------------------------------------------------------------------------------------


def timed(database: Database, sweeps: Iterable[str]) -> list[Trial]:
    """The right and timed candidates of these sweeps with their screening, sweep by sweep in the order judged."""
    table, evaluation = models.Trial, models.Evaluation
    query = right().order_by(None).order_by(table.sweep_id, table.number)
    query = query.join(evaluation, evaluation.id == table.evaluation_id)
    query = query.add_columns(evaluation.median_ms.label("screened_ms"))
    with database.connections.read() as connection:
        found = list(in_chunks(connection, query, table.sweep_id, sweeps))
        measured = latest_baselines(connection, {row.sweep_id for row in found})
    return [replace(to_trial(row), screened_speedup=_screened(row, measured.get(row.sweep_id, {}))) for row in found]


def _screened(row: Row[Any], baselines: Mapping[str, float]) -> float | None:
    """The speedup of a trial's screening over the fastest baseline; the final timing of a leader replaced it."""
    if not row.final:
        return row.speedup
    return min(baselines.values()) / row.screened_ms if baselines and row.screened_ms else None


def baselines(database: Database, sweeps: Iterable[str]) -> dict[str, dict[str, float]]:
    """The latest medians of the baselines' screening in each of these sweeps, in milliseconds."""
    with database.connections.read() as connection:
        return latest_baselines(connection, sweeps)


def failures(database: Database, sweeps: Sequence[SweepRow]) -> tuple[Failures, ...]:
    """The failures of these sweeps by status, the most frequent first; the example comes from the first sweep."""
    counts: Counter[Status] = Counter()
    with_example: dict[Status, str] = {}
    for row in sweeps:
        counts.update(row.counts)
        for status in row.counts:
            with_example.setdefault(status, row.id)
    with database.connections.read() as connection:
        asked = dict.fromkeys(sweep for status, sweep in with_example.items() if status.value not in NO_FAILURES)
        groups = {(sweep, group.status): group for sweep in asked for group in _failures(connection, sweep)}
    found = (replace(group, count=counts[at]) for (sweep, at), group in groups.items() if with_example[at] == sweep)
    return tuple(sorted(found, key=lambda group: (-group.count, group.status)))


def rejections(database: Database, sweeps: Iterable[str]) -> tuple[Rejections, ...]:
    """The rejections of these sweeps by constraint, the most frequent first. A combination counts in each sweep."""
    with database.connections.read() as connection:
        return _rejections(connection, sweeps)


def known(database: Database, sweep_id: str, plans: Sequence[str], each: int) -> list[Known]:
    """The right candidates with one of these plans from before a sweep, in its environment and class of accuracy.

    The answer has the ``each`` fastest of each problem and plan. Those of the sweep's own problem come first, then the
    fastest. Results since the start of the sweep do not count, so that a continued sweep gets the same answer.
    """
    table, trial, of = models.Sweep, models.Trial, models.Candidate
    place = func.row_number().over(partition_by=(table.problem_id, of.plan), order_by=(trial.median_ms, of.id))
    slower = trial.median_ms / func.min(trial.median_ms).over(partition_by=table.problem_id)
    with database.connections.read() as connection:
        asked = connection.execute(select(table.__table__).where(table.id == sweep_id)).one()
        ranked = (
            select(table.problem_id, of.plan, of.params, slower.label("slower"), place.label("place"))
            .select_from(of)
            .join(trial, trial.candidate_id == of.id)
            .join(table, table.id == trial.sweep_id)
            .where(of.plan.in_(plans), trial.status == Status.OK.value, trial.median_ms.is_not(None))
            .where(table.environment_id == asked.environment_id, table.accuracy == asked.accuracy)
            .where(table.kind == "sweep", trial.created_at < asked.started_at)
            .subquery()
        )
        query = select(ranked).where(ranked.c.place <= each)
        query = query.order_by(ranked.c.problem_id != asked.problem_id, ranked.c.slower, ranked.c.plan)
        return [Known(row.plan, row.params, row.slower) for row in connection.execute(query)]


# Candidates ----------------------------------------------------------------------------------------------------


def candidate(database: Database, candidate_id: str) -> CandidateDetail:
    """One candidate with all its evaluations."""
    table, text = models.Candidate, models.Source.text
    query = select(table.__table__, text).join(models.Source).where(table.id == candidate_id)
    with database.connections.read() as connection:
        row = connection.execute(query).one_or_none()
        if row is None:
            raise NotFoundError(f"no candidate {candidate_id} in {database.name}")
        arguments = _arguments(connection, candidate_id)
        return CandidateDetail(
            id=row.id,
            plan=row.plan,
            plan_data=Plan.from_json(row.plan_data),
            params=row.params,
            rewrites=tuple(row.rewrites),
            device_type=row.device_type,
            kernels=row.kernels,
            source_lines=row.source_lines,
            control=row.control,
            origin=row.origin,
            proposed_by=proposals.proposed_by(connection, candidate_id),
            source=row.text,
            judgements=_judgements(connection, candidate_id),
            finals=_finals(connection, candidate_id),
            rooflines={sweep: found["roofline"] for sweep, found in arguments.items() if found.get("roofline")},
            products={sweep: tuple(map(read_product, found.get("products", ()))) for sweep, found in arguments.items()},
        )


def _finals(connection: Connection, candidate_id: str) -> dict[str, Timing]:
    """The latest timing of the candidate beside the baselines in each sweep."""
    table = models.Timing
    query = select(table.__table__).where(table.subject == candidate_id, table.depth == Depth.FINAL.value)
    found = connection.execute(query.order_by(table.created_at))
    return {row.sweep_id: rows.to_timing(row) for row in found}


def _arguments(connection: Connection, candidate_id: str) -> dict[str, Mapping[str, Any]]:
    """The arguments of the sweeps that have the candidate, with what was stored among them."""
    query = select(models.Sweep.id, models.Sweep.arguments).join(models.Trial, models.Trial.sweep_id == models.Sweep.id)
    return {row.id: row.arguments for row in connection.execute(query.where(models.Trial.candidate_id == candidate_id))}


def source(database: Database, candidate_id: str) -> str:
    """The text of a candidate."""
    with database.connections.read() as connection:
        return connection.execute(
            select(models.Source.text).where(models.Source.candidate_id == candidate_id)
        ).scalar_one()


def _judgements(connection: Connection, candidate_id: str) -> tuple[Judgement, ...]:
    table = models.Evaluation
    query = rows.select_evaluations().where(table.candidate_id == candidate_id).order_by(table.created_at.desc())
    found = connection.execute(query).all()
    named = problems_by_id(connection, {row.problem_id for row in found})
    environments = environments_by_id(connection, {row.environment_id for row in found})
    trials: dict[str, list[Trial]] = {}
    for row in connection.execute(select_trials().where(models.Trial.candidate_id == candidate_id)):
        trials.setdefault(row.evaluation_id, []).append(to_trial(row))
    return tuple(
        Judgement(
            evaluation=rows.to_evaluation(row),
            problem=named[row.problem_id],
            environment=environments[row.environment_id],
            created_at=row.created_at,
            trials=tuple(trials.get(row.id, ())),
        )
        for row in found
    )


#: The kinds of things with an id, and the columns of the ids.
_NAMED = {"sweep": models.Sweep.id, "candidate": models.Candidate.id, "environment": models.Environment.id}


def resolve(database: Database, prefix: str, kinds: Sequence[str] = ("sweep", "candidate")) -> tuple[str, str]:
    """The kind and the whole id for the beginning of an id: ``("sweep", id)``, ``("candidate", id)``, ...

    Raises :class:`NotFoundError` if no id of these kinds begins so, or more than one does.
    """
    text = prefix.lower()
    found: list[tuple[str, str]] = []
    if text and set(text) <= set("0123456789abcdef"):
        with database.connections.read() as connection:
            for kind in kinds:
                column = _NAMED[kind]
                # A range, because LIKE does not always use the index; "g" follows every hexadecimal digit.
                query = select(column).where(column >= text, column < text + "g").order_by(column).limit(3)
                found += [(kind, row.id) for row in connection.execute(query)]
    if not found:
        raise NotFoundError(f"no {' or '.join(kinds)} {prefix!r} in {database.name}; `kgen history` lists the sweeps")
    if len(found) > 1:
        examples = ", ".join(f"{kind} {name[: len(text) + 4]}" for kind, name in found)
        raise NotFoundError(f"{prefix!r} is ambiguous ({examples}, ...): give more characters")
    return found[0]
