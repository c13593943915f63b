"""The selection of sweeps by device, state and time, as conditions of a query."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, Connection, Row, and_, exists, false, or_, select

from kgen.store import holder, models

#: The states of a sweep. A sweep is also found by the status of any of its candidates.
STATES = ("running", "finished", "interrupted", "failed")


@dataclass(frozen=True)
class Selection:
    """Sweeps that ran on ``device`` (``cpu``, ``cuda``, ``cuda:1``), have ``status``, and began in this time.

    ``status`` is one of :data:`STATES`, or a :class:`kgen.protocol.Status` that at least one candidate has.
    The moment ``since`` is included, and ``before`` is not. Without ``weight_copies``, they are sweeps whose candidates
    keep no weight in another form.
    """

    device: str | None = None
    status: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    weight_copies: bool = True

    def conditions(self, connection: Connection) -> list[ColumnElement[bool]]:
        """The conditions on a row of ``sweep``."""
        table = models.Sweep
        found = []
        if self.device is not None:
            found.append(_on_device(self.device))
        if self.status in STATES:
            found.append(_in_state(connection, self.status))
        elif self.status is not None:
            trial = models.Trial
            found.append(exists().where(trial.sweep_id == table.id, trial.status == self.status))
        if self.since is not None:
            found.append(table.started_at >= self.since)
        if self.before is not None:
            found.append(table.started_at < self.before)
        if not self.weight_copies:
            found.append(table.arguments["weight_copies"].as_boolean() == false())
        return found


EVERY = Selection()


def state(row: Row[tuple[object, ...]]) -> str:
    """The state of a sweep. A running sweep whose process is gone was interrupted."""
    gone = row.state == "running" and not holder.is_alive(row.holder)
    return "interrupted" if gone else str(row.state)


def _in_state(connection: Connection, wanted: str) -> ColumnElement[bool]:
    table = models.Sweep
    running = connection.execute(select(table.id, table.state, table.holder).where(table.state == "running"))
    gone = [row.id for row in running if state(row) == "interrupted"]
    if wanted == "interrupted":
        return or_(table.state == "interrupted", table.id.in_(gone))
    return and_(table.state == wanted, table.id.not_in(gone))


def _on_device(device: str) -> ColumnElement[bool]:
    """The condition that a sweep ran on ``device``: a kind (``cuda``), or one of them (``cuda:1``)."""
    if ":" in device:
        return models.Sweep.device.in_([device, *([device.removesuffix(":0")] if device.endswith(":0") else [])])
    table = models.Environment
    return models.Sweep.environment_id.in_(select(table.id).where(table.device_type == device))
