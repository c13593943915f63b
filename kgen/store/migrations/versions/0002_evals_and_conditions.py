"""Sweeps have a kind, so that a file judged by ``kgen eval`` is one too; timings have their conditions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Plain ALTER TABLEs: their defaults fill the rows that are there, and no table is copied.
    op.add_column("sweep", sa.Column("kind", sa.String(length=8), server_default="sweep", nullable=False))
    op.add_column("timing", sa.Column("conditions", sa.JSON(), server_default="{}", nullable=False))
