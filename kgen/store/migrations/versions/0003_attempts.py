"""Problems that were refused, or that failed while they were swept, are kept with the reason."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "attempt",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("source_hash", sa.String(length=64), nullable=False),
        sa.Column("mode", sa.String(length=8), nullable=True),
        sa.Column("accuracy", sa.String(length=16), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(length=8), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("kgen", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("overrides", sa.JSON(), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_attempt"),
    )
    op.create_index("ix_attempt_source_hash_created_at", "attempt", ["source_hash", "created_at"])
