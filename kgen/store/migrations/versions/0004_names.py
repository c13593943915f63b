"""Plans and parameters have the names of the schedules' folders and of the field: warm starts find older candidates."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from kgen.store import renamed

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_CANDIDATE = sa.table(
    "candidate", sa.column("id"), sa.column("plan"), sa.column("origin"), sa.column("params", sa.JSON())
)
_REJECTION = sa.table(
    "rejection",
    sa.column("sweep_id"),
    sa.column("key"),
    sa.column("plan"),
    sa.column("constraint_name"),
    sa.column("params", sa.JSON()),
)


def upgrade() -> None:
    connection = op.get_bind()
    for name in connection.scalars(sa.select(_CANDIDATE.c.plan).distinct()).all():
        _rename_candidates(connection, name)
    for sweep in connection.scalars(sa.select(_REJECTION.c.sweep_id).distinct()).all():
        _rename_rejections(connection, sweep)


def _rename_candidates(connection: sa.Connection, plan: str) -> None:
    """The candidates of one plan: no more rows than that are in memory at a time."""
    rows = connection.execute(sa.select(_CANDIDATE).where(_CANDIDATE.c.plan == plan)).mappings().all()
    new = [{"old": row["id"], **renamed.candidate(row)} for row in rows]
    changed = [
        row for row, old in zip(new, rows, strict=True) if (row["plan"], row["params"]) != (old["plan"], old["params"])
    ]
    update = sa.update(_CANDIDATE).where(_CANDIDATE.c.id == sa.bindparam("old"))
    _run(connection, update, changed, ("plan", "params"))


def _rename_rejections(connection: sa.Connection, sweep: str) -> None:
    """The rejections of one sweep. Their keys follow from their names, so that a sweep that goes on finds them."""
    rows = connection.execute(sa.select(_REJECTION).where(_REJECTION.c.sweep_id == sweep)).mappings().all()
    new = [{"old": row["key"], **renamed.rejection(row)} for row in rows]
    changed = [row for row in new if row["key"] != row["old"]]
    update = sa.update(_REJECTION).where(_REJECTION.c.sweep_id == sweep, _REJECTION.c.key == sa.bindparam("old"))
    _run(connection, update, changed, ("key", "plan", "constraint_name", "params"))


def _run(connection: sa.Connection, update: sa.Update, rows: list[dict], columns: tuple[str, ...]) -> None:
    """Set these columns of the rows to their new values."""
    if rows:
        types = {"params": sa.JSON()}
        values = {column: sa.bindparam(f"new_{column}", type_=types.get(column, sa.String())) for column in columns}
        given = [{"old": row["old"], **{f"new_{column}": row[column] for column in columns}} for row in rows]
        connection.execute(update.values(values), given)
