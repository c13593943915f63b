"""Conversions between dataclasses and rows of the tables."""

from __future__ import annotations

import secrets
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Row, Select, select

from kgen.candidate import Candidate, Trust
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy, Depth, Environment, Evaluation, Phase, Status, Timing
from kgen.store import codec, models


@dataclass(frozen=True)
class StoredEvaluation(Evaluation):
    """An evaluation read from the database, with the id of its row. Another sweep links it instead of a copy."""

    id: str = ""


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(timezone.utc)


def new_id() -> str:
    """16 random hexadecimal characters, unique over all databases."""
    return secrets.token_hex(8)


def from_problem(problem: Problem) -> dict[str, Any]:
    """A row of ``problem``, without its health."""
    return {
        "id": problem.id,
        "name": problem.name,
        "mode": problem.mode,
        "default_mode": False,
        "source_hash": problem.source_hash,
        "path": problem.path,
        "created_at": now(),
        "overrides": codec.plain(dict(problem.overrides)),
        "health_passed_by": [],
        "health_notes": [],
        "source": problem.source,
    }


def from_environment(environment: Environment) -> dict[str, Any]:
    """A row of ``environment``."""
    return {"id": environment.id, **asdict(environment), "created_at": now()}


def from_candidate(candidate: Candidate) -> dict[str, Any]:
    """A row of ``candidate``; its text is a row of another table."""
    return {
        "id": candidate.id,
        "plan": candidate.plan,
        "device_type": candidate.device_type,
        "kernels": candidate.kernels,
        "source_lines": candidate.source_lines,
        "control": candidate.control,
        "origin": "sweep" if candidate.origin is Trust.OWN else "file",  # the words of the stored column
        "created_at": now(),
        "params": codec.plain(candidate.params),
        "rewrites": list(candidate.rewrites),
        "plan_data": candidate.plan_data.to_json(),
    }


def from_evaluation(evaluation: Evaluation) -> dict[str, Any]:
    """A row of ``evaluation`` without its id and its foreign keys."""
    return {
        "accuracy": evaluation.accuracy.value,
        "status": evaluation.status.value,
        "phase": evaluation.phase.value if evaluation.phase else None,
        "error_ratio": evaluation.error_ratio,
        "binary_hash": evaluation.build.binary if evaluation.build else None,
        "created_at": now(),
        "log": evaluation.log,
        "reason": codec.printable(evaluation.reason),
        "labels": list(evaluation.labels),
        "seconds": dict(evaluation.seconds),
        "build": codec.build_to_json(evaluation.build),
        "errors": codec.errors_to_json(evaluation.errors),
    }


def from_timing(timing: Timing) -> dict[str, Any]:
    """A row of ``timing`` without its foreign keys."""
    from kgen.protocol.statistics import median_ms  # only writers need it; readers start faster without it

    return {
        "id": new_id(),
        "subject": timing.subject,
        "depth": timing.depth.value,
        "session": timing.session,
        "median_ms": median_ms(timing) if any(timing.blocks) else None,
        "prepare_ms": timing.prepare_ms,
        "created_at": now(),
        "bursts": codec.plain(timing.blocks),  # the older name of sample blocks
        "conditions": codec.plain(dict(timing.conditions)),
    }


def select_evaluations() -> Select[Any]:
    """The columns of :func:`to_evaluation`: the evaluation and its own timing."""
    table, timing = models.Evaluation, models.Timing
    timed = (timing.subject, timing.depth, timing.session, timing.prepare_ms, timing.bursts, timing.conditions)
    return select(*table.__table__.columns, *timed).outerjoin(timing, timing.evaluation_id == table.id)


def to_evaluation(row: Row[Any]) -> StoredEvaluation:
    """The evaluation of a row of :func:`select_evaluations`."""
    return StoredEvaluation(
        id=row.id,
        candidate=row.candidate_id,
        status=Status(row.status),
        reason=row.reason,
        accuracy=Accuracy(row.accuracy),
        phase=Phase(row.phase) if row.phase else None,
        errors=codec.errors_from_json(row.errors),
        build=codec.build_from_json(row.build),
        timing=to_timing(row) if row.bursts is not None else None,
        labels=tuple(row.labels),
        seconds=tuple(row.seconds.items()),
        log=row.log,
    )


def to_timing(row: Row[Any]) -> Timing:
    """The timing of a row with the columns of its table."""
    blocks = tuple(tuple(float(sample) for sample in block) for block in row.bursts)
    conditions = tuple(row.conditions.items())
    return Timing(row.subject, Depth(row.depth), row.session, blocks, row.prepare_ms, conditions)


def to_environment(row: Row[Any]) -> Environment:
    """The environment of a row with the columns of its table."""
    return Environment(**{name: getattr(row, name) for name in Environment.__dataclass_fields__})
