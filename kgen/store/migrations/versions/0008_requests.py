"""Requests to the service are kept from their acceptance to their answer."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "request",
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("id", sa.String(length=100), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("priority", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("environment", sa.String(length=16), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("ended_at", sa.DateTime(), nullable=True),
        sa.Column("answer", sa.JSON(), nullable=True),
        sa.Column("asked", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "id", name="pk_request"),
    )
    op.create_index("ix_request_state", "request", ["state"])
    op.create_index("ix_request_digest_environment", "request", ["digest", "environment"])
