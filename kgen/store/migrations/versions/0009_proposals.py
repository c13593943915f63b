"""Answers of proposers are kept: prompt, reply, model, tokens, and what became of each proposal."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "proposal",
        sa.Column("sweep_id", sa.String(length=16), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("proposer", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("reply_tokens", sa.Integer(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=False),
        sa.Column("reply", sa.Text(), nullable=False),
        sa.Column("proposals", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], name="fk_proposal_sweep_id_sweep"),
        sa.PrimaryKeyConstraint("sweep_id", "number", name="pk_proposal"),
    )
