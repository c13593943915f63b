"""The write side: each method is one transaction, committed before it returns."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from kgen.candidate import Candidate, Rejection, Trust
from kgen.errors import DatabaseBusyError, NotFoundError
from kgen.paths import db_url
from kgen.problems.problem import Problem
from kgen.protocol import (
    KNOWN_BASELINES,
    Accuracy,
    Depth,
    Environment,
    Evaluation,
    Health,
    LibraryProduct,
    Phase,
    Status,
    Timing,
    __version__,
)
from kgen.store import codec, holder, integrity, models, rows, schema
from kgen.store.connections import Connections
from kgen.store.rows import StoredEvaluation

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite


class Database:
    """The database of problems, sweeps, candidates and their evaluations.

    A context manager. Several threads may share one ``Database``; several processes may not.

    Every method raises :class:`~kgen.errors.DatabaseError` or :class:`~kgen.errors.DiskError` with one line, and
    :class:`~kgen.errors.DatabaseBusyError` after it waited for another process.
    """

    def __init__(self, connections: Connections) -> None:
        self.connections = connections

    @classmethod
    def open(
        cls, url: str | None = None, *, notice: Callable[[str], None] | None = None, create: bool = True
    ) -> Database:
        """Open the database at ``url`` (a URL or a path; by default ``KGEN_DB``, or ``kgen.db`` in the home folder).

        An older database is migrated. A missing one is made; without ``create`` it raises
        :class:`~kgen.errors.NotFoundError`. ``notice`` receives one line when kgen waits for another process. Raises
        :class:`~kgen.errors.DatabaseVersionError` for a database written by a newer kgen, and
        :class:`~kgen.errors.DatabaseError` for one in which rows are missing.
        """
        connections = Connections(db_url(url), notice, create)
        try:
            schema.ensure(connections, create)
            integrity.check(connections, integrity.OPEN_SECONDS)
        except BaseException:
            connections.close()
            raise
        return cls(connections)

    @property
    def url(self) -> str:
        """The database's URL."""
        return self.connections.url

    @property
    def name(self) -> str:
        """The database in messages: a path, or a URL without its password."""
        return self.connections.name

    def close(self) -> None:
        """Close the connections; all writes are committed already."""
        self.connections.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def together(self) -> AbstractContextManager[None]:
        """One transaction for all writes of this thread in the block: all are committed at its end, or none."""
        return self.connections.together()

    # Problems and environments ---------------------------------------------------------------------------------

    def add_problem(self, problem: Problem, health: Health | None = None) -> None:
        """Store a problem whose mode is settled. A known problem only gets its health, and the mark that its mode is
        the default mode."""
        changes: dict[str, Any] = {"default_mode": True} if problem.asked_mode is None else {}
        if health is not None:
            changes |= {"health_passed_by": list(health.passed_by), "health_notes": list(health.notes)}
        with self.connections.write() as connection:
            _insert_new(connection, models.Problem, [rows.from_problem(problem)])
            if changes:
                connection.execute(update(models.Problem).where(models.Problem.id == problem.id).values(changes))

    def add_environment(self, environment: Environment) -> None:
        """Store an environment; a known one stays unchanged."""
        with self.connections.write() as connection:
            _insert_new(connection, models.Environment, [rows.from_environment(environment)])

    # Sweeps ----------------------------------------------------------------------------------------------------

    def start_sweep(
        self,
        *,
        problem: Problem,
        environment: Environment,
        accuracy: Accuracy,
        device: str,
        arguments: Mapping[str, Any],
        combinations: int,
        budget: int,
        kind: str = "sweep",
        roofline: Mapping[str, Any] | None = None,
        products: Sequence[LibraryProduct] = (),
    ) -> str:
        """Begin a sweep, held by this process. Its problem and environment were added before. Returns its id.

        ``kind`` is ``eval`` for the evaluation of one file, a sweep of one candidate, and ``tune`` for a user's
        template. ``roofline`` is a value of :meth:`kgen.codegen.roofline.Basis.plain`. ``products`` are the library's
        products, on which tolerances depend. Both are stored among the arguments, but do not identify the sweep.
        """
        sweep = rows.new_id()
        found = {"roofline": roofline, "products": [asdict(one) for one in products]}
        row = {
            "id": sweep,
            "problem_id": problem.id,
            "environment_id": environment.id,
            "accuracy": accuracy.value,
            "device": device,
            "state": "running",
            "combinations": combinations,
            "budget": budget,
            "started_at": rows.now(),
            "holder": holder.this_process(),
            "kgen": __version__,
            "arguments_hash": _arguments_hash(arguments),
            "arguments": codec.plain({**arguments, **{name: value for name, value in found.items() if value}}),
            "kind": kind,
        }
        with self.connections.write() as connection:
            _insert_new(connection, models.Sweep, [row])
        return sweep

    def unfinished_sweep(
        self,
        problem_id: str,
        environment_id: str,
        accuracy: Accuracy,
        arguments: Mapping[str, Any],
        kind: str = "sweep",
    ) -> str | None:
        """The latest sweep with these arguments that was interrupted or killed, for :meth:`reopen_sweep`."""
        query = (
            select(models.Sweep.id, models.Sweep.state, models.Sweep.holder)
            .where(
                models.Sweep.problem_id == problem_id,
                models.Sweep.environment_id == environment_id,
                models.Sweep.accuracy == accuracy.value,
                models.Sweep.arguments_hash == _arguments_hash(arguments),
                models.Sweep.kind == kind,
                models.Sweep.state.in_(("running", "interrupted")),
            )
            .order_by(models.Sweep.started_at.desc())
        )
        with self.connections.read() as connection:
            found = connection.execute(query).all()
        return next((row.id for row in found if row.state == "interrupted" or not holder.is_alive(row.holder)), None)

    def reopen_sweep(self, sweep: str) -> None:
        """Continue an unfinished sweep in this process. Raises :class:`DatabaseBusyError` if another process holds it.

        Its finalists get the figures of their screening back, because they will be timed again.
        """
        query = select(models.Sweep.state, models.Sweep.holder).where(models.Sweep.id == sweep)
        mine = holder.this_process()
        with self.connections.write() as connection:
            row = connection.execute(query.with_for_update()).one_or_none()
            if row is None:
                raise NotFoundError(f"no sweep {sweep} in {self.name}")
            if row.state == "running" and row.holder != mine and holder.is_alive(row.holder):
                raise DatabaseBusyError(f"sweep {sweep} is running in another process ({row.holder})")
            changes = {"state": "running", "holder": mine, "ended_at": None}
            connection.execute(update(models.Sweep).where(models.Sweep.id == sweep).values(changes))
            _screen_again(connection, sweep)

    def finish_sweep(self, sweep: str, state: str, seconds: float, best: str | None) -> None:
        """End a sweep as ``finished``, ``interrupted`` or ``failed``.

        ``seconds`` is the time of this process; the time of earlier processes is added. ``best`` is a candidate's id.
        """
        spent = func.coalesce(models.Sweep.seconds, 0.0) + seconds
        changes = {"state": state, "seconds": spent, "best": best, "ended_at": rows.now()}
        with self.connections.write() as connection:
            connection.execute(update(models.Sweep).where(models.Sweep.id == sweep).values(changes))

    def drop_sweep(self, sweep: str) -> None:
        """Delete a sweep that has judged no candidate."""
        with self.connections.write() as connection:
            for table in (models.Rejection, models.Timing):
                connection.execute(delete(table).where(table.sweep_id == sweep))
            connection.execute(delete(models.Sweep).where(models.Sweep.id == sweep))

    def add_rejections(self, sweep: str, rejections: Sequence[Rejection]) -> None:
        """Store combinations that were ruled out; known ones stay unchanged."""
        ruled_out = [
            {
                "sweep_id": sweep,
                "key": _rejection_key(rejection),
                "plan": rejection.plan,
                "constraint_name": rejection.constraint,
                "reason": rejection.reason,
                "params": codec.plain(rejection.params),
            }
            for rejection in rejections
        ]
        with self.connections.write() as connection:
            _insert_new(connection, models.Rejection, ruled_out)

    # Evaluations -----------------------------------------------------------------------------------------------

    def add_evaluation(
        self,
        sweep: str,
        candidate: Candidate,
        evaluation: Evaluation,
        *,
        environment_id: str,
        median_ms: float | None = None,
        speedup: float | None = None,
    ) -> str:
        """Store the result of a candidate: its row, source, evaluation, timing and trial, all or nothing.

        Returns the id of the evaluation.

        ``median_ms`` and ``speedup`` come from its screening against this sweep's baselines. An evaluation that
        :meth:`known` or :meth:`evaluated` returned is linked to the sweep, not copied. For a candidate that the sweep
        has already (an ``infra_error``, tried again), the new evaluation replaces the old one.
        """
        with self.connections.write() as connection:
            # Each writer locks the sweep's row, because PostgreSQL lets several write at once.
            swept = select(models.Sweep.problem_id).where(models.Sweep.id == sweep).with_for_update()
            problem = connection.execute(swept).scalar()
            _add_candidate(connection, candidate)
            taken_over = _is_stored(connection, candidate.id, environment_id, evaluation)
            if taken_over:
                evaluation_id = evaluation.id  # type: ignore[attr-defined]
            else:
                evaluation_id = _add_evaluation(
                    connection, sweep, problem, candidate.id, evaluation, environment_id, median_ms
                )
            figures = {"median_ms": median_ms, "speedup": speedup, "error_ratio": evaluation.error_ratio}
            _link(connection, sweep, candidate.id, evaluation_id, evaluation.status, taken_over, figures)
        return evaluation_id

    def overturn(self, evaluation_id: str, status: Status, phase: Phase, reason: str) -> None:
        """Change the status of a right candidate that failed in the finals; its samples are kept."""
        verdict = {"status": status.value, "phase": phase.value, "reason": codec.printable(reason), "median_ms": None}
        figures = {"status": status.value, "median_ms": None, "speedup": None}
        evaluation, trial = models.Evaluation, models.Trial
        with self.connections.write() as connection:
            connection.execute(update(evaluation).where(evaluation.id == evaluation_id).values(verdict))
            connection.execute(update(trial).where(trial.evaluation_id == evaluation_id).values(figures))

    def add_timings(self, sweep: str, environment_id: str, accuracy: Accuracy, timings: Sequence[Timing]) -> None:
        """Store the raw samples of finalists and baselines."""
        with self.connections.write() as connection:
            timed = [_timing_row(sweep, environment_id, accuracy, timing) for timing in timings]
            _insert_new(connection, models.Timing, timed)

    def scale_speedups(self, sweep: str, factor: float) -> None:
        """Change the speedups of a sweep's screenings by ``factor``, since a faster baseline was timed."""
        trial = models.Trial
        screened = (trial.sweep_id == sweep, trial.final.is_(False), trial.speedup.is_not(None))
        with self.connections.write() as connection:
            connection.execute(update(trial).where(*screened).values(speedup=trial.speedup * factor))

    def set_result(
        self,
        sweep: str,
        candidate_id: str,
        *,
        median_ms: float,
        speedup: float,
        speedup_low: float,
        speedup_high: float,
        baselines: Mapping[str, float],
        baseline: str,
        error_ratio: float | None,
        tie: bool,
    ) -> None:
        """Store the figures of a finalist: its time and the baselines' in milliseconds, its speedup over ``baseline``.

        Raises :class:`NotFoundError` for a candidate that the sweep has not evaluated.
        """
        changes = {
            "final": True,
            "median_ms": median_ms,
            "speedup": speedup,
            "speedup_low": speedup_low,
            "speedup_high": speedup_high,
            "baseline": baseline,
            "baselines": {name: float(value) for name, value in baselines.items()},
            "error_ratio": error_ratio,
            "tie": tie,
        }
        which = (models.Trial.sweep_id == sweep, models.Trial.candidate_id == candidate_id)
        with self.connections.write() as connection:
            if connection.execute(update(models.Trial).where(*which).values(changes)).rowcount != 1:
                raise NotFoundError(f"sweep {sweep} has no candidate {candidate_id}")

    def known(
        self, candidate_id: str, environment_id: str, accuracy: Accuracy, problem_id: str | None = None
    ) -> StoredEvaluation | None:
        """The latest evaluation of this candidate, or ``None``. An ``infra_error`` never counts.

        An evaluation with a warm cache does not count either, because sweeps measure with a cold one. ``problem_id``
        selects evaluations on that problem: the same file may fit the problem at other sizes.
        """
        table = models.Evaluation
        query = rows.select_evaluations().where(
            table.candidate_id == candidate_id,
            table.environment_id == environment_id,
            table.accuracy == accuracy.value,
            table.status != Status.INFRA_ERROR.value,
            models.Timing.conditions["cache"].as_string().is_distinct_from("warm"),
        )
        if problem_id is not None:
            query = query.where(table.problem_id == problem_id)
        with self.connections.read() as connection:
            row = connection.execute(query.order_by(table.created_at.desc()).limit(1)).one_or_none()
        return rows.to_evaluation(row) if row else None

    def evaluated(self, sweep: str) -> dict[str, Evaluation]:
        """The evaluations of a sweep by candidate, in the order judged. An ``infra_error`` is left out: it is tried
        again."""
        query = (
            rows.select_evaluations()
            .join(models.Trial, models.Trial.evaluation_id == models.Evaluation.id)
            .where(models.Trial.sweep_id == sweep, models.Trial.status != Status.INFRA_ERROR.value)
            .order_by(models.Trial.number)
        )
        with self.connections.read() as connection:
            found = connection.execute(query).all()
        return {row.candidate_id: rows.to_evaluation(row) for row in found}


def _arguments_hash(arguments: Mapping[str, Any]) -> str:
    return hashlib.sha256(codec.canonical(arguments).encode()).hexdigest()


def _rejection_key(rejection: Rejection) -> str:
    text = "\0".join((rejection.plan, rejection.constraint, codec.canonical(rejection.params)))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def insertion(connection: Connection, table: type[models.Base] | Table) -> postgresql.Insert | sqlite.Insert:
    """An insert that can handle existing rows; each database has its own syntax."""
    # Only writers need one of these imports; readers start faster without them.
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def _insert_new(connection: Connection, model: type[models.Base], values: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows; a row with an existing primary key stays unchanged."""
    if values:
        connection.execute(insertion(connection, model).on_conflict_do_nothing(), values)


def _add_candidate(connection: Connection, candidate: Candidate) -> None:
    """Store a candidate and its source. A foreign file gets its description when a sweep renders the same text."""
    row = rows.from_candidate(candidate)
    adding = insertion(connection, models.Candidate)
    if candidate.origin is Trust.OWN:
        described = {name: adding.excluded[name] for name in row if name not in ("id", "created_at")}
        adding = adding.on_conflict_do_update(
            index_elements=["id"], set_=described, where=models.Candidate.origin != "sweep"
        )
    else:
        adding = adding.on_conflict_do_nothing()
    connection.execute(adding, row)
    _insert_new(connection, models.Source, [{"candidate_id": candidate.id, "text": candidate.source}])


def _add_evaluation(
    connection: Connection,
    sweep: str,
    problem_id: str | None,
    candidate_id: str,
    evaluation: Evaluation,
    environment_id: str,
    median_ms: float | None,
) -> str:
    """Insert a new evaluation with its timing; its problem is the sweep's. Returns its id."""
    evaluation_id = rows.new_id()
    row = {
        **rows.from_evaluation(evaluation),
        "id": evaluation_id,
        "candidate_id": candidate_id,
        "problem_id": problem_id,
        "environment_id": environment_id,
        "median_ms": median_ms,
    }
    connection.execute(insert(models.Evaluation), row)
    if evaluation.timing:
        timing = _timing_row(sweep, environment_id, evaluation.accuracy, evaluation.timing)
        _insert_new(connection, models.Timing, [{**timing, "evaluation_id": evaluation_id}])
    return evaluation_id


def _is_stored(connection: Connection, candidate_id: str, environment_id: str, evaluation: Evaluation) -> bool:
    """Whether ``evaluation`` is an unchanged row of this database."""
    if not isinstance(evaluation, StoredEvaluation):
        return False
    table = models.Evaluation
    query = select(table.id).where(
        table.id == evaluation.id,
        table.candidate_id == candidate_id,
        table.environment_id == environment_id,
        table.accuracy == evaluation.accuracy.value,
        table.status == evaluation.status.value,
    )
    return connection.execute(query).first() is not None


def _link(
    connection: Connection,
    sweep: str,
    candidate_id: str,
    evaluation_id: str,
    status: Status,
    taken_over: bool,
    figures: Mapping[str, float | None],
) -> None:
    """Make the evaluation the one that counts for the candidate in the sweep, if it is not already."""
    which = (models.Trial.sweep_id == sweep, models.Trial.candidate_id == candidate_id)
    judged_by = connection.execute(select(models.Trial.evaluation_id).where(*which)).scalar()
    if judged_by == evaluation_id:
        return
    changes = {"evaluation_id": evaluation_id, "status": status.value, "taken_over": taken_over, **figures}
    if judged_by is not None:
        connection.execute(update(models.Trial).where(*which).values(changes))
        return
    query = select(func.coalesce(func.max(models.Trial.number), 0) + 1).where(models.Trial.sweep_id == sweep)
    row = {
        "sweep_id": sweep,
        "candidate_id": candidate_id,
        "number": connection.execute(query).scalar_one(),
        "final": False,
        "tie": False,
        "created_at": rows.now(),
        **changes,
    }
    connection.execute(insert(models.Trial), row)


def _screen_again(connection: Connection, sweep: str) -> None:
    """Give the finalists of a sweep the figures of their screening back."""
    trial, evaluation, timing = models.Trial, models.Evaluation, models.Timing
    screened = (timing.sweep_id == sweep, timing.subject.in_(KNOWN_BASELINES), timing.depth == Depth.SCREEN.value)
    fastest = connection.execute(select(func.min(timing.median_ms)).where(*screened)).scalar()
    query = select(trial.candidate_id, evaluation.median_ms).join(evaluation, evaluation.id == trial.evaluation_id)
    for row in connection.execute(query.where(trial.sweep_id == sweep, trial.final.is_(True))).all():
        changes: dict[str, Any] = {"final": False, "tie": False, "speedup_low": None, "speedup_high": None}
        if fastest and row.median_ms:
            changes |= {"median_ms": row.median_ms, "speedup": fastest / row.median_ms}
        which = (trial.sweep_id == sweep, trial.candidate_id == row.candidate_id)
        connection.execute(update(trial).where(*which).values(changes))


def _timing_row(sweep: str, environment_id: str, accuracy: Accuracy, timing: Timing) -> dict[str, Any]:
    belongs = {"sweep_id": sweep, "environment_id": environment_id, "accuracy": accuracy.value}
    return {**rows.from_timing(timing), **belongs}
