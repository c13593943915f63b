"""Plans are stored as JSON beside their names: nothing reads steps from a name any more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from kgen.store import named_plans

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_CANDIDATE = sa.table("candidate", sa.column("plan"), sa.column("origin"), sa.column("plan_data", sa.JSON()))
_REJECTION = sa.table("rejection", sa.column("sweep_id"), sa.column("plan"), sa.column("plan_data", sa.JSON()))


def upgrade() -> None:
    for table in ("candidate", "rejection"):
        # Plain ALTER TABLEs, as in 0002.
        op.add_column(table, sa.Column("plan_data", sa.JSON(), server_default="{}", nullable=False))
    connection = op.get_bind()
    _fill(connection, _CANDIDATE, _CANDIDATE.c.origin == "sweep")  # a file from outside has no plan
    for sweep in connection.scalars(sa.select(_REJECTION.c.sweep_id).distinct()).all():
        _fill(connection, _REJECTION, _REJECTION.c.sweep_id == sweep)  # an index finds the rows of a sweep


def _fill(connection: sa.Connection, table: sa.TableClause, where: sa.ColumnElement[bool]) -> None:
    """Store the plans of these rows, one statement for each name."""
    for name in connection.scalars(sa.select(table.c.plan).where(where).distinct()).all():
        plan = named_plans.read(name).to_json()
        if plan:
            connection.execute(sa.update(table).where(where, table.c.plan == name).values(plan_data=plan))
