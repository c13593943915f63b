"""Modules of users' programs: found by a fingerprint, with the candidates that take the places of their parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Sequence

from sqlalchemy import ColumnElement, delete, false, insert, select, true

from kgen.protocol import __version__
from kgen.store import models, rows
from kgen.store.database import Database
from kgen.store.selection import Selection


@dataclass(frozen=True)
class StoredModule:
    """The result of one search after ``minutes``. ``parts`` are the found parts, as JSON objects.

    A part has the ``paths`` of equal submodules, and its ``winner``, which names a candidate and a problem's hash.
    Without parts, nothing was faster.
    """

    fingerprint: str
    name: str
    minutes: float
    parts: Sequence[dict[str, Any]]


def keep(database: Database, module: StoredModule) -> None:
    """Store what was found, in one transaction. An earlier result of the same module is replaced."""
    row = {
        "fingerprint": module.fingerprint, "name": module.name, "minutes": module.minutes, "parts": list(module.parts),
        "kgen": __version__, "created_at": rows.now(),
    }  # fmt: skip
    with database.connections.write() as connection:
        connection.execute(delete(models.Module).where(models.Module.fingerprint == module.fingerprint))
        connection.execute(insert(models.Module), row)


def find(database: Database, fingerprint: str) -> StoredModule | None:
    """The stored result of the module with this fingerprint; ``None`` where there is none."""
    table = models.Module
    with database.connections.read() as connection:
        row = connection.execute(select(table.__table__).where(table.fingerprint == fingerprint)).one_or_none()
    return StoredModule(row.fingerprint, row.name, row.minutes, row.parts) if row else None


def conditions(name: str | None, among: Selection) -> list[ColumnElement[bool]]:
    """The conditions on modules of this class. A selection by device or status selects none: a module has neither."""
    table = models.Module
    found: list[ColumnElement[bool]] = [false() if among.device is not None or among.status is not None else true()]
    if name is not None:
        found.append(table.name == name)
    if among.since is not None:
        found.append(table.created_at >= among.since)
    if among.before is not None:
        found.append(table.created_at < among.before)
    return found


def texts(database: Database, candidate: str, source_hash: str) -> tuple[str, str] | None:
    """The text of a candidate and that of the problem with this hash; ``None`` where one of them was pruned."""
    with database.connections.read() as connection:
        source = connection.scalar(select(models.Source.text).where(models.Source.candidate_id == candidate))
        problem = connection.scalar(
            select(models.Problem.source).where(models.Problem.source_hash == source_hash).limit(1)
        )
    return (source, problem) if source is not None and problem is not None else None
