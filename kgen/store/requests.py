"""The queue of the service: each request is one row, from its acceptance to its answer.

    add ──> queued ── begin ──> running ── finish ──> done

A row names the process that holds it. The next service adopts the rows of a dead process.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, false, insert, select, update

from kgen.store import codec, holder, models, rows
from kgen.store.database import Database
from kgen.store.reading import chunks
from kgen.store.selection import Selection

QUEUED, RUNNING, DONE = "queued", "running", "done"  #: the states of a request


@dataclass(frozen=True)
class StoredRequest:
    """One accepted request. ``owner`` is the SHA-256 of the client's token; empty without tokens."""

    owner: str
    id: str
    digest: str
    priority: int
    asked: Mapping[str, Any]
    state: str = QUEUED
    tries: int = 0
    answer: Mapping[str, Any] | None = None
    created_at: datetime | None = None
    ended_at: datetime | None = None


class _TakenBack(Exception):
    """Ends a transaction that is to change nothing."""


_FIELDS = tuple(StoredRequest.__dataclass_fields__)
_COLUMNS = [getattr(models.Request, name) for name in _FIELDS]


def add(database: Database, requests: Sequence[StoredRequest]) -> list[tuple[StoredRequest, bool]]:
    """Keep requests of one owner in one transaction, held by this process. Returns the row of each request, and whether
    the row is new. If the owner has used an id before, the older row stays. If an older row describes another
    evaluation, no request is kept."""
    return add_all(database, [requests])[0]


def add_all(database: Database, batches: Sequence[Sequence[StoredRequest]]) -> list[list[tuple[StoredRequest, bool]]]:
    """Keep several batches, each of one owner, in one transaction: the only commit waits for the disk once."""
    moment, mine = rows.now(), holder.this_process()
    known: dict[tuple[str, str], StoredRequest] = {}
    new: list[StoredRequest] = []
    found: list[list[tuple[StoredRequest, bool]]] = []
    with database.connections.write() as connection:
        for owner in dict.fromkeys(batch[0].owner for batch in batches if batch):
            of_owner = [request for batch in batches for request in batch if request.owner == owner]
            known |= {(owner, id): row for id, row in _find(connection, of_owner).items()}
        for batch in batches:
            keys = [(request.owner, request.id) for request in batch]
            if any(key in known and known[key].digest != request.digest for key, request in zip(keys, batch)):
                found.append([(known.get(key, request), False) for key, request in zip(keys, batch)])
                continue
            added = {key: replace(request, created_at=moment) for key, request in zip(keys, batch) if key not in known}
            known |= added
            new += added.values()
            found.append([(known[key], key in added) for key in keys])
        if new:
            connection.execute(insert(models.Request), [_row(request, mine) for request in new])
    return found


def rehearse(database: Database) -> None:
    """Take requests through their states in a transaction that is rolled back: the first use of a statement takes 20
    ms."""
    one, *more = (StoredRequest("", f"?{number}", "", 0, {}) for number in range(3))  # no client can choose such an id
    with suppress(_TakenBack), database.connections.together():
        add(database, [one])
        add(database, more)
        begin(database, one.owner, one.id)
        finish(database, [(one.owner, one.id)], {})
        raise _TakenBack
    known(database, one.digest, "")
    find(database, one.owner, one.id)


def stored(database: Database, requests: Sequence[StoredRequest]) -> dict[str, StoredRequest]:
    """The rows of one owner that have the ids of these requests, by id."""
    with database.connections.read() as connection:
        return _find(connection, requests)


def find(database: Database, owner: str, id: str) -> StoredRequest | None:
    """The request with this id of this owner; ``None`` where there is none."""
    table = models.Request
    with database.connections.read() as connection:
        row = connection.execute(select(*_COLUMNS).where(table.owner == owner, table.id == id)).one_or_none()
    return StoredRequest(**row._mapping) if row else None


def begin(database: Database, owner: str, id: str) -> int | None:
    """Mark a queued request of this process as running. Returns how often it has begun; ``None`` where it is not
    queued."""
    table = models.Request
    which = (table.owner == owner, table.id == id, table.state == QUEUED, table.holder == holder.this_process())
    with database.connections.write() as connection:
        begun = connection.execute(update(table).where(*which).values(state=RUNNING, tries=table.tries + 1))
        if begun.rowcount != 1:
            return None
        return connection.execute(select(table.tries).where(*which[:2])).scalar_one()


def finish(
    database: Database, requests: Sequence[tuple[str, str]], answer: Mapping[str, Any], environment: str | None = None
) -> list[tuple[str, str]]:
    """Answer requests, by owner and id, in one transaction. Returns the requests that had no answer before: each
    request gets only one answer."""
    table = models.Request
    changes = {"state": DONE, "answer": codec.storable(answer), "environment": environment, "ended_at": rows.now()}
    answered = []
    with database.connections.write() as connection:
        for owner, id in requests:
            which = (table.owner == owner, table.id == id, table.state != DONE)
            if connection.execute(update(table).where(*which).values(changes)).rowcount == 1:
                answered.append((owner, id))
    return answered


def known(database: Database, digest: str, environment: str) -> StoredRequest | None:
    """The latest answered request with this digest in this environment; ``None`` where there is none."""
    table = models.Request
    query = select(*_COLUMNS).where(table.digest == digest, table.environment == environment, table.state == DONE)
    with database.connections.read() as connection:
        row = connection.execute(query.order_by(table.ended_at.desc()).limit(1)).one_or_none()
    return StoredRequest(**row._mapping) if row else None


def adopt(database: Database) -> list[StoredRequest]:
    """Take over the unanswered requests of ended processes, in the order of their acceptance. All these requests are
    queued."""
    table, mine = models.Request, holder.this_process()
    with database.connections.write() as connection:
        query = select(table.holder).where(table.state != DONE).distinct()
        holders = [one for one in connection.execute(query).scalars() if one == mine or not holder.is_alive(one)]
        which = (table.state != DONE, table.holder.in_(holders))
        connection.execute(update(table).where(*which).values(state=QUEUED, holder=mine))
        query = select(*_COLUMNS).where(table.state == QUEUED, table.holder == mine)
        found = connection.execute(query.order_by(table.created_at, table.id)).all()
    return [StoredRequest(**row._mapping) for row in found]


def conditions(name: str | None, among: Selection) -> list[ColumnElement[bool]]:
    """The conditions on answered requests about problems with this name. A selection by device or status selects
    none."""
    table = models.Request
    found: list[ColumnElement[bool]] = [table.state == DONE]
    if among.device is not None or among.status is not None:
        found.append(false())
    if name is not None:
        found.append(table.asked["problem"]["name"].as_string() == name)
    if among.since is not None:
        found.append(table.created_at >= among.since)
    if among.before is not None:
        found.append(table.created_at < among.before)
    return found


def _find(connection: Connection, requests: Sequence[StoredRequest]) -> dict[str, StoredRequest]:
    table, found = models.Request, {}
    for ids in chunks(request.id for request in requests):
        query = select(*_COLUMNS).where(table.owner == requests[0].owner, table.id.in_(ids))
        found |= {row.id: StoredRequest(**row._mapping) for row in connection.execute(query)}
    return found


def _row(request: StoredRequest, mine: str) -> dict[str, Any]:
    return {
        "owner": request.owner,
        "id": request.id,
        "digest": request.digest,
        "state": QUEUED,
        "priority": request.priority,
        "tries": 0,
        "holder": mine,
        "created_at": request.created_at,
        "asked": dict(request.asked),
    }
