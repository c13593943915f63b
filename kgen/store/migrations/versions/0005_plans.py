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


def upgrade() -> None:
    # A plain ALTER TABLE, as in 0002. Nothing reads the steps of a rejection, of which a sweep has thousands.
    op.add_column("candidate", sa.Column("plan_data", sa.JSON(), server_default="{}", nullable=False))
    connection, swept = op.get_bind(), _CANDIDATE.c.origin == "sweep"  # a file from outside has no plan
    for name in connection.scalars(sa.select(_CANDIDATE.c.plan).where(swept).distinct()).all():
        plan = named_plans.read(name).to_json()
        if plan:
            connection.execute(sa.update(_CANDIDATE).where(swept, _CANDIDATE.c.plan == name).values(plan_data=plan))
