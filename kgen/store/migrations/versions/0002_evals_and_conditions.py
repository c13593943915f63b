"""Add the kind of a sweep, for files that ``kgen eval`` judged, and the conditions of a timing."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Plain ALTER TABLEs: defaults fill the existing rows, and no table is copied.
    op.add_column("sweep", sa.Column("kind", sa.String(length=8), server_default="sweep", nullable=False))
    op.add_column("timing", sa.Column("conditions", sa.JSON(), server_default="{}", nullable=False))
