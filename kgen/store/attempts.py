"""Attempts at problems without a finished sweep: refused or failed. Sweeps and suites write them, scores read them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Iterable, Mapping

from sqlalchemy import ColumnElement, insert, select, true

from kgen.problems.problem import Problem
from kgen.protocol import __version__
from kgen.store import codec, models, rows
from kgen.store.database import Database
from kgen.store.reading import chunks
from kgen.store.selection import STATES, Selection

#: The outcomes of an attempt.
REFUSED, FAILED = "refused", "failed"
OUTCOMES = (REFUSED, FAILED)


@dataclass(frozen=True)
class Attempt:
    """A problem that was ``refused``, or that ``failed`` while it was swept, and why (one line).

    ``mode`` is the requested mode. ``device`` and ``arguments`` are the values that the sweep's row would have had.
    """

    name: str
    path: str
    source_hash: str
    mode: str | None
    overrides: Mapping[str, Any]
    accuracy: str
    device: str
    outcome: str
    reason: str
    seconds: float
    arguments: Mapping[str, Any]

    @property
    def title(self) -> str:
        """The name with its overrides."""
        return Problem(self.name, self.path, "", tuple(self.overrides.items())).title


@dataclass(frozen=True)
class StoredAttempt(Attempt):
    """An attempt read back, with the moment when it ended."""

    created_at: datetime


def add(database: Database, attempt: Attempt) -> None:
    """Keep an attempt, in one transaction."""
    described = asdict(attempt) | {"reason": codec.printable(attempt.reason)}
    json = {name: codec.plain(described[name]) for name in ("overrides", "arguments")}
    row = {**described, **json, "id": rows.new_id(), "kgen": __version__, "created_at": rows.now()}
    with database.connections.write() as connection:
        connection.execute(insert(models.Attempt), row)


def conditions(name: str | None, among: Selection) -> list[ColumnElement[bool]]:
    """The conditions on attempts at problems with this name. Of all statuses, only ``failed`` selects attempts."""
    table = models.Attempt
    found: list[ColumnElement[bool]] = [true()]
    if name is not None:
        found.append(table.name == name)
    if among.device is not None:
        exact = ":" in among.device
        found.append(table.device == among.device if exact else table.device.startswith(among.device, autoescape=True))
    if among.status is not None:
        found.append(table.outcome == (among.status if among.status in STATES else ""))
    if among.since is not None:
        found.append(table.created_at >= among.since)
    if among.before is not None:
        found.append(table.created_at < among.before)
    return found


def latest(
    database: Database, source_hashes: Iterable[str] | None = None, *, among: Selection
) -> dict[str, list[StoredAttempt]]:
    """The attempts at problems with these sources, or at any, the latest first, by the hash of the source."""
    table = models.Attempt
    query = select(table.__table__).where(*conditions(None, among)).order_by(table.created_at.desc())
    found: dict[str, list[StoredAttempt]] = {}
    with database.connections.read() as connection:
        parts = (
            [query] if source_hashes is None else [query.where(table.source_hash.in_(c)) for c in chunks(source_hashes)]
        )
        for part in parts:
            for row in connection.execute(part):
                fields = {name: getattr(row, name) for name in StoredAttempt.__dataclass_fields__}
                found.setdefault(row.source_hash, []).append(StoredAttempt(**fields))
    return found
