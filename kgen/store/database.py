"""The write side: each method is one transaction, committed before it returns."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from sqlalchemy import Connection, Table, delete, func, insert, select, update

import kgen
from kgen.candidate import Candidate, Rejection, Trust
from kgen.errors import DatabaseBusyError, NotFoundError
from kgen.evaluator.protocol import Accuracy, Environment, Evaluation, Health, Phase, Status, Timing
from kgen.paths import db_url
from kgen.problem import Problem
from kgen.store import codec, holder, models, rows, schema
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

        An older database is migrated; a missing one is made, or is a :class:`~kgen.errors.NotFoundError` where
        ``create`` is false. ``notice`` is given one line when another process is waited for.
        Raises :class:`~kgen.errors.DatabaseVersionError` for a database written by a newer kgen.
        """
        connections = Connections(db_url(url), notice, create)
        try:
            schema.ensure(connections, create)
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
        """The database as people are shown it: a path, or a URL without its password."""
        return self.connections.name

    def close(self) -> None:
        """Give back the connections; what was written is committed already."""
        self.connections.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Problems and environments ---------------------------------------------------------------------------------

    def add_problem(self, problem: Problem, health: Health | None = None) -> None:
        """Keep a problem whose mode is settled. Known ones learn their health, and that their mode is the default."""
        changes: dict[str, Any] = {"default_mode": True} if problem.asked_mode is None else {}
        if health is not None:
            changes |= {"health_passed_by": list(health.passed_by), "health_notes": list(health.notes)}
        with self.connections.write() as connection:
            _insert_new(connection, models.Problem, [rows.from_problem(problem)])
            if changes:
                connection.execute(update(models.Problem).where(models.Problem.id == problem.id).values(changes))

    def add_environment(self, environment: Environment) -> None:
        """Keep an environment; one that is known stays as it is."""
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
    ) -> str:
        """Begin a sweep, held by this process; its problem and environment were added before. Returns its id.

        ``kind`` is ``eval`` for one file that is judged on its own: a sweep of one candidate. ``roofline`` is what
        :meth:`kgen.roofline.Basis.plain` gives, kept among the arguments, of which it tells nothing apart.
        """
        sweep = rows.new_id()
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
            "kgen": kgen.__version__,
            "arguments_hash": _arguments_hash(arguments),
            "arguments": codec.plain({**arguments, **({"roofline": roofline} if roofline else {})}),
            "kind": kind,
        }
        with self.connections.write() as connection:
            _insert_new(connection, models.Sweep, [row])
        return sweep

    def unfinished_sweep(
        self, problem_id: str, environment_id: str, accuracy: Accuracy, arguments: Mapping[str, Any]
    ) -> str | None:
        """The latest sweep with these arguments that was interrupted or killed, for :meth:`reopen_sweep`."""
        query = (
            select(models.Sweep.id, models.Sweep.state, models.Sweep.holder)
            .where(
                models.Sweep.problem_id == problem_id,
                models.Sweep.environment_id == environment_id,
                models.Sweep.accuracy == accuracy.value,
                models.Sweep.arguments_hash == _arguments_hash(arguments),
                models.Sweep.kind == "sweep",
                models.Sweep.state.in_(("running", "interrupted")),
            )
            .order_by(models.Sweep.started_at.desc())
        )
        with self.connections.read() as connection:
            found = connection.execute(query).all()
        return next((row.id for row in found if row.state == "interrupted" or not holder.is_alive(row.holder)), None)

    def reopen_sweep(self, sweep: str) -> None:
        """Go on with an unfinished sweep in this process; :class:`DatabaseBusyError` where another one has it.

        Finalists that it had already are none any more: they are timed again with those still to come.
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
            screened = {"final": False, "tie": False, "speedup_low": None, "speedup_high": None}
            finalists = (models.Trial.sweep_id == sweep, models.Trial.final.is_(True))
            connection.execute(update(models.Trial).where(*finalists).values(screened))

    def finish_sweep(self, sweep: str, state: str, seconds: float, best: str | None) -> None:
        """End a sweep as ``finished``, ``interrupted`` or ``failed``.

        ``seconds`` is what this process spent on it; those of earlier processes are added. ``best`` is a candidate.
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
        """Keep combinations that were ruled out; those that the sweep has already are left as they are."""
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
        """Keep what became of a candidate of a sweep: its row, source, evaluation, timing and trial, all or nothing.

        Returns the id of the evaluation.

        ``median_ms`` and ``speedup`` are those of its screening against this sweep's baselines. An evaluation that
        :meth:`known` or :meth:`evaluated` returned is linked to the sweep, not doubled. A candidate that the sweep has
        already (an ``infra_error`` that was tried again) is judged by the new evaluation from then on.
        """
        with self.connections.write() as connection:
            # Whoever adds to a sweep holds its row, where the database lets several write at once.
            connection.execute(select(models.Sweep.id).where(models.Sweep.id == sweep).with_for_update())
            _add_candidate(connection, candidate)
            taken_over = _is_stored(connection, candidate.id, environment_id, evaluation)
            if taken_over:
                evaluation_id = evaluation.id  # type: ignore[attr-defined]
            else:
                evaluation_id = _add_evaluation(connection, sweep, candidate.id, evaluation, environment_id, median_ms)
            figures = {"median_ms": median_ms, "speedup": speedup, "error_ratio": evaluation.error_ratio}
            _link(connection, sweep, candidate.id, evaluation_id, evaluation.status, taken_over, figures)
        return evaluation_id

    def overturn(self, evaluation_id: str, status: Status, phase: Phase, reason: str) -> None:
        """Change the verdict on a right candidate that failed when it was timed again; its samples are kept."""
        verdict = {"status": status.value, "phase": phase.value, "reason": codec.printable(reason), "median_ms": None}
        figures = {"status": status.value, "median_ms": None, "speedup": None}
        evaluation, trial = models.Evaluation, models.Trial
        with self.connections.write() as connection:
            connection.execute(update(evaluation).where(evaluation.id == evaluation_id).values(verdict))
            connection.execute(update(trial).where(trial.evaluation_id == evaluation_id).values(figures))

    def add_timings(self, sweep: str, environment_id: str, accuracy: Accuracy, timings: Sequence[Timing]) -> None:
        """Keep the raw samples of finalists and baselines."""
        with self.connections.write() as connection:
            timed = [_timing_row(sweep, environment_id, accuracy, timing) for timing in timings]
            _insert_new(connection, models.Timing, timed)

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
        """The latest evaluation of this candidate, or ``None``; an ``infra_error`` says nothing and is never known.

        One that was timed with a warm cache does not compare with what sweeps measure, and is not known either.
        ``problem_id`` asks for an evaluation on that very problem: the same file may fit the problem at other sizes.
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
        """What the sweep has judged already, by candidate in the order judged; ``infra_error`` is tried again."""
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
    """An insert that can say what becomes of rows that are there, which each database spells itself."""
    # Only writers need these, and only one of them: readers start faster without.
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)
    from sqlalchemy.dialects import sqlite

    return sqlite.insert(table)


def _insert_new(connection: Connection, model: type[models.Base], values: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, leaving those whose primary key is there as they are."""
    if values:
        connection.execute(insertion(connection, model).on_conflict_do_nothing(), values)


def _add_candidate(connection: Connection, candidate: Candidate) -> None:
    """Keep a candidate and its source. One that was a file from outside is described when a sweep renders it."""
    row = rows.from_candidate(candidate)
    _insert_new(connection, models.Candidate, [row])
    if candidate.origin is Trust.OWN:
        table = models.Candidate
        from_outside = (table.id == candidate.id, table.origin != "sweep")
        described = {name: value for name, value in row.items() if name not in ("id", "created_at")}
        connection.execute(update(table).where(*from_outside).values(described))
    _insert_new(connection, models.Source, [{"candidate_id": candidate.id, "text": candidate.source}])


def _add_evaluation(
    connection: Connection,
    sweep: str,
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
        "problem_id": select(models.Sweep.problem_id).where(models.Sweep.id == sweep).scalar_subquery(),
        "environment_id": environment_id,
        "median_ms": median_ms,
    }
    connection.execute(insert(models.Evaluation).values(row))
    if evaluation.timing:
        timing = _timing_row(sweep, environment_id, evaluation.accuracy, evaluation.timing)
        _insert_new(connection, models.Timing, [{**timing, "evaluation_id": evaluation_id}])
    return evaluation_id


def _is_stored(connection: Connection, candidate_id: str, environment_id: str, evaluation: Evaluation) -> bool:
    """Whether ``evaluation`` is a row of this database as it stands there, and not one made from it."""
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
    """Make the evaluation the one that judges the candidate in the sweep; nothing changes where it is already."""
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


def _timing_row(sweep: str, environment_id: str, accuracy: Accuracy, timing: Timing) -> dict[str, Any]:
    belongs = {"sweep_id": sweep, "environment_id": environment_id, "accuracy": accuracy.value}
    return {**rows.from_timing(timing), **belongs}
