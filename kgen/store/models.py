"""The tables, as SQLAlchemy models: column types that SQLite and PostgreSQL share, and the indexes of all queries.

    problem ──┐
              ├── sweep ──┬── rejection
    environment           ├── trial ──── evaluation ──── timing
                          └── timing (finals, baselines)
    candidate ── source
    task ─────┬── task_result
              ├── sweep_task        the tasks of a sweep
              └── candidate_task    the steps of a candidate
    attempt
    module
    request

A *trial* is one candidate in one sweep. It names its evaluation, which another sweep may have made, and has the
candidate's figures against this sweep's baselines. A sweep of kind ``eval`` is one file judged by ``kgen eval``: a
sweep of one candidate, stored like any other. A *task* is one kernel, or library call, of networks. An *attempt* is a
problem without a sweep, with the reason. A *module* is a module of a user's program, with the candidates that replace
its parts. A *request* is a request that the service accepted. Wide columns come last in their tables, so that SQLite
reads a listing without their overflow pages. ``docs/schema.md`` explains each column.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, Double, ForeignKey, Index, MetaData, String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

#: Constraints have names, so that migrations can name them on every database.
NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, stored as UTC without a zone, because SQLite has none; read back with its zone."""

    impl = DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.astimezone(timezone.utc).replace(tzinfo=None) if value else None

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value.replace(tzinfo=timezone.utc) if value else None


class Base(DeclarativeBase):
    """The base of all tables."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {
        dict[str, Any]: JSON,
        list[Any]: JSON,
        datetime: UtcDateTime,
        float: Double,
    }


class Problem(Base):
    """A problem file with its overrides applied, in one mode."""

    __tablename__ = "problem"
    __table_args__ = (Index(None, "name"), Index(None, "source_hash"))

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str]
    mode: Mapped[str] = mapped_column(String(8))
    default_mode: Mapped[bool]
    source_hash: Mapped[str] = mapped_column(String(64))
    path: Mapped[str]
    created_at: Mapped[datetime]
    overrides: Mapped[dict[str, Any]]
    health_passed_by: Mapped[list[Any]]
    health_notes: Mapped[list[Any]]
    source: Mapped[str] = mapped_column(Text)


class Environment(Base):
    """The place of evaluations: only timings of one environment are compared."""

    __tablename__ = "environment"

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    device_type: Mapped[str] = mapped_column(String(16))
    device: Mapped[str]
    arch: Mapped[str]
    driver: Mapped[str]
    toolkit: Mapped[str]
    compiler: Mapped[str]
    torch: Mapped[str]
    python: Mapped[str]
    threads: Mapped[int]
    host: Mapped[str]
    created_at: Mapped[datetime]


#: Kinds of sweeps: of kgen's own candidates, of one judged file, of a user's template, of proposals.
KINDS = ("sweep", "eval", "tune", "agent")
OWN_KINDS = KINDS[:1]


class Sweep(Base):
    """One run of the loop over one problem, or of one judged file, with its arguments and its end."""

    __tablename__ = "sweep"
    __table_args__ = (Index(None, "started_at"), Index(None, "problem_id", "started_at"))

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    problem_id: Mapped[str] = mapped_column(ForeignKey("problem.id"))
    environment_id: Mapped[str] = mapped_column(ForeignKey("environment.id"))
    accuracy: Mapped[str] = mapped_column(String(16))
    device: Mapped[str]
    state: Mapped[str] = mapped_column(String(16))
    combinations: Mapped[int]
    budget: Mapped[int]
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    seconds: Mapped[float | None]
    best: Mapped[str | None] = mapped_column(ForeignKey("candidate.id"))
    holder: Mapped[str]
    kgen: Mapped[str]
    arguments_hash: Mapped[str] = mapped_column(String(64))
    arguments: Mapped[dict[str, Any]]
    kind: Mapped[str] = mapped_column(String(8), server_default="sweep")


class Candidate(Base):
    """One file, rendered or foreign, named by the hash of its text."""

    __tablename__ = "candidate"
    __table_args__ = (Index(None, "plan"),)

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    plan: Mapped[str]
    device_type: Mapped[str] = mapped_column(String(16))
    kernels: Mapped[int]
    source_lines: Mapped[int]
    control: Mapped[bool]
    origin: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime]
    params: Mapped[dict[str, Any]]
    rewrites: Mapped[list[Any]]
    plan_data: Mapped[dict[str, Any]] = mapped_column(server_default="{}")


class Source(Base):
    """The text of a candidate, apart from the columns of listings."""

    __tablename__ = "source"

    candidate_id: Mapped[str] = mapped_column(ForeignKey("candidate.id"), primary_key=True)
    text: Mapped[str] = mapped_column(Text)


class Rejection(Base):
    """A combination of one sweep that a constraint ruled out before rendering."""

    __tablename__ = "rejection"

    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweep.id"), primary_key=True)
    key: Mapped[str] = mapped_column(String(32), primary_key=True)
    plan: Mapped[str]
    constraint_name: Mapped[str]
    reason: Mapped[str]
    params: Mapped[dict[str, Any]]


class Evaluation(Base):
    """The result of a candidate on a problem, in an environment, for a class of accuracy."""

    __tablename__ = "evaluation"
    __table_args__ = (Index(None, "candidate_id", "environment_id", "accuracy"), Index(None, "binary_hash"))

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    candidate_id: Mapped[str] = mapped_column(ForeignKey("candidate.id"))
    problem_id: Mapped[str] = mapped_column(ForeignKey("problem.id"))
    environment_id: Mapped[str] = mapped_column(ForeignKey("environment.id"))
    accuracy: Mapped[str] = mapped_column(String(16))
    status: Mapped[str] = mapped_column(String(20))
    phase: Mapped[str | None] = mapped_column(String(16))
    error_ratio: Mapped[float | None]
    median_ms: Mapped[float | None]
    binary_hash: Mapped[str | None] = mapped_column(String(64))
    created_at: Mapped[datetime]
    log: Mapped[str]
    reason: Mapped[str] = mapped_column(Text)
    labels: Mapped[list[Any]]
    seconds: Mapped[dict[str, Any]]
    build: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    errors: Mapped[list[Any]]


class Trial(Base):
    """One candidate in one sweep: the evaluation that judged it, and its figures against the sweep's baselines.

    ``status`` repeats the evaluation's, so that a sweep's counts are read from an index alone.
    """

    __tablename__ = "trial"
    __table_args__ = (
        Index(None, "sweep_id", "status", "number"),
        Index(None, "sweep_id", "taken_over"),
        Index(None, "sweep_id", "final", "speedup"),
        Index(None, "sweep_id", "number"),
        Index(None, "candidate_id"),
        Index(None, "evaluation_id"),
    )

    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweep.id"), primary_key=True)
    candidate_id: Mapped[str] = mapped_column(ForeignKey("candidate.id"), primary_key=True)
    evaluation_id: Mapped[str] = mapped_column(ForeignKey("evaluation.id"))
    number: Mapped[int]
    status: Mapped[str] = mapped_column(String(20))
    taken_over: Mapped[bool]
    final: Mapped[bool]
    tie: Mapped[bool]
    median_ms: Mapped[float | None]
    speedup: Mapped[float | None]
    speedup_low: Mapped[float | None]
    speedup_high: Mapped[float | None]
    error_ratio: Mapped[float | None]
    baseline: Mapped[str | None]
    created_at: Mapped[datetime]
    baselines: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class Timing(Base):
    """Raw samples of one subject, a candidate or a baseline, in one timing session."""

    __tablename__ = "timing"
    __table_args__ = (Index(None, "sweep_id", "subject"), Index(None, "evaluation_id"), Index(None, "subject"))

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweep.id"))
    evaluation_id: Mapped[str | None] = mapped_column(ForeignKey("evaluation.id"))
    environment_id: Mapped[str] = mapped_column(ForeignKey("environment.id"))
    accuracy: Mapped[str] = mapped_column(String(16))
    subject: Mapped[str] = mapped_column(String(64))
    depth: Mapped[str] = mapped_column(String(16))
    session: Mapped[str]
    median_ms: Mapped[float | None]
    prepare_ms: Mapped[float | None]
    created_at: Mapped[datetime]
    bursts: Mapped[list[Any]]
    conditions: Mapped[dict[str, Any]] = mapped_column(server_default="{}")


class Attempt(Base):
    """A problem that was refused, or that failed while it was swept: the request and the reason."""

    __tablename__ = "attempt"
    __table_args__ = (Index(None, "source_hash", "created_at"),)

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str]
    path: Mapped[str]
    source_hash: Mapped[str] = mapped_column(String(64))
    mode: Mapped[str | None] = mapped_column(String(8))
    accuracy: Mapped[str] = mapped_column(String(16))
    device: Mapped[str]
    outcome: Mapped[str] = mapped_column(String(8))
    seconds: Mapped[float]
    kgen: Mapped[str]
    created_at: Mapped[datetime]
    reason: Mapped[str] = mapped_column(Text)
    overrides: Mapped[dict[str, Any]]
    arguments: Mapped[dict[str, Any]]


class Task(Base):
    """One step of networks' plans alone: what it computes, of which operands, on which device."""

    __tablename__ = "task"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    label: Mapped[str]
    device_type: Mapped[str] = mapped_column(String(16))
    device: Mapped[str]
    accuracy: Mapped[str] = mapped_column(String(16))
    limit_ms: Mapped[float | None]
    created_at: Mapped[datetime]
    identity: Mapped[dict[str, Any]]


class TaskResult(Base):
    """The result of one variant of a task in an environment."""

    __tablename__ = "task_result"
    __table_args__ = (Index(None, "task_id", "environment_id"),)

    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    task_id: Mapped[str] = mapped_column(ForeignKey("task.id"))
    environment_id: Mapped[str] = mapped_column(ForeignKey("environment.id"))
    schedule: Mapped[str]
    text_hash: Mapped[str] = mapped_column(String(64))
    status: Mapped[str] = mapped_column(String(20))
    cold_ms: Mapped[float | None]
    warm_ms: Mapped[float | None]
    error: Mapped[float | None]
    allowed: Mapped[float | None]
    kgen: Mapped[str]
    created_at: Mapped[datetime]
    reason: Mapped[str] = mapped_column(Text)
    params: Mapped[dict[str, Any]]


class SweepTask(Base):
    """A task of a sweep's plans, with the number of its steps in the plan that is predicted best."""

    __tablename__ = "sweep_task"
    __table_args__ = (Index(None, "task_id"),)

    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweep.id"), primary_key=True)
    task_id: Mapped[str] = mapped_column(ForeignKey("task.id"), primary_key=True)
    uses: Mapped[int]


class CandidateTask(Base):
    """One step of an assembled candidate: its task, and the result by which its variant was chosen."""

    __tablename__ = "candidate_task"
    __table_args__ = (Index(None, "task_id"), Index(None, "result_id"))

    candidate_id: Mapped[str] = mapped_column(ForeignKey("candidate.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    task_id: Mapped[str] = mapped_column(ForeignKey("task.id"))
    result_id: Mapped[str | None] = mapped_column(ForeignKey("task_result.id"))
    name: Mapped[str]
    reason: Mapped[str] = mapped_column(Text)


class Module(Base):
    """A module of a user's program, by a fingerprint of its classes, tensors and inputs, with the candidates that were
    found for it."""

    __tablename__ = "module"

    fingerprint: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str]
    minutes: Mapped[float]
    kgen: Mapped[str]
    created_at: Mapped[datetime]
    parts: Mapped[list[Any]]


class Request(Base):
    """An evaluation that the service was asked for: its place in the queue, then its answer.

    ``digest`` names all that a verdict depends on. ``asked`` and ``answer`` are JSON objects of :mod:`kgen.serve`.
    """

    __tablename__ = "request"
    __table_args__ = (Index(None, "state"), Index(None, "digest", "environment"))

    owner: Mapped[str] = mapped_column(String(64), primary_key=True)
    id: Mapped[str] = mapped_column(String(100), primary_key=True)
    digest: Mapped[str] = mapped_column(String(64))
    state: Mapped[str] = mapped_column(String(8))
    priority: Mapped[int]
    tries: Mapped[int]
    holder: Mapped[str]
    environment: Mapped[str | None] = mapped_column(String(16))
    created_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    answer: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    asked: Mapped[dict[str, Any]]


class Proposal(Base):
    """One answer of a proposer in a run of ``kgen agent``: the proposals, and what became of each.

    ``proposals`` are JSON objects: a proposal, and once it is judged its ``status``, ``reason``, ``candidate``, ``ms``
    and ``speedup``.
    """

    __tablename__ = "proposal"

    sweep_id: Mapped[str] = mapped_column(ForeignKey("sweep.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    proposer: Mapped[str]
    model: Mapped[str]
    prompt_tokens: Mapped[int | None]
    reply_tokens: Mapped[int | None]
    created_at: Mapped[datetime]
    prompt: Mapped[str] = mapped_column(Text)
    reply: Mapped[str] = mapped_column(Text)
    proposals: Mapped[list[Any]]
