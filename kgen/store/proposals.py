"""Answers of proposers: kept as soon as they come, and again once each of their proposals is judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Mapping, Sequence

from sqlalchemy import Connection, insert, select, update

from kgen.store import codec, models, rows
from kgen.store.database import Database


@dataclass(frozen=True)
class StoredProposals:
    """One answer of a proposer. ``proposals`` are JSON objects, which have a ``status`` once they are judged."""

    sweep_id: str
    number: int
    proposer: str
    model: str
    prompt: str
    reply: str
    prompt_tokens: int | None
    reply_tokens: int | None
    proposals: Sequence[Mapping[str, Any]]


_COLUMNS = [getattr(models.Proposal, name) for name in StoredProposals.__dataclass_fields__]


def add(database: Database, answer: StoredProposals) -> None:
    """Keep an answer whose proposals are not judged yet."""
    texts = {name: codec.printable(getattr(answer, name)) for name in ("model", "prompt", "reply")}
    row = {**vars(answer), **texts, "proposals": codec.storable(answer.proposals), "created_at": rows.now()}
    with database.connections.write() as connection:
        connection.execute(insert(models.Proposal), row)


def judged(database: Database, answer: StoredProposals, proposals: Sequence[Mapping[str, Any]]) -> StoredProposals:
    """Keep what became of the proposals so far. Returns the answer with them."""
    table = models.Proposal
    which = (table.sweep_id == answer.sweep_id, table.number == answer.number)
    with database.connections.write() as connection:
        connection.execute(update(table).where(*which).values(proposals=codec.storable(proposals)))
    return replace(answer, proposals=tuple(proposals))


def of_sweep(database: Database, sweep: str) -> list[StoredProposals]:
    """The answers of a run, in their order."""
    table = models.Proposal
    with database.connections.read() as connection:
        found = connection.execute(select(*_COLUMNS).where(table.sweep_id == sweep).order_by(table.number)).all()
    return [StoredProposals(**row._mapping) for row in found]


def proposed_by(connection: Connection, candidate_id: str) -> str:
    """The model, or the proposer, that proposed a candidate first; empty where nobody did."""
    table, trial = models.Proposal, models.Trial
    query = select(table.proposer, table.model, table.proposals).join(trial, trial.sweep_id == table.sweep_id)
    found = connection.execute(
        query.where(trial.candidate_id == candidate_id).order_by(table.created_at, table.number)
    ).all()
    return next(
        (row.model or row.proposer for row in found if any(p.get("candidate") == candidate_id for p in row.proposals)),
        "",
    )
