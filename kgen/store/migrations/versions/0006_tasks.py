"""Kernel tasks of networks, what became of their variants, and which sweeps and candidates have them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "task",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("device_type", sa.String(length=16), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("accuracy", sa.String(length=16), nullable=False),
        sa.Column("limit_ms", sa.Double(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("identity", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_task"),
    )
    op.create_table(
        "task_result",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("task_id", sa.String(length=64), nullable=False),
        sa.Column("environment_id", sa.String(length=16), nullable=False),
        sa.Column("schedule", sa.String(), nullable=False),
        sa.Column("text_hash", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("cold_ms", sa.Double(), nullable=True),
        sa.Column("warm_ms", sa.Double(), nullable=True),
        sa.Column("error", sa.Double(), nullable=True),
        sa.Column("allowed", sa.Double(), nullable=True),
        sa.Column("kgen", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="fk_task_result_task_id_task"),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environment.id"], name="fk_task_result_environment_id_environment"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_task_result"),
    )
    op.create_index("ix_task_result_task_id_environment_id", "task_result", ["task_id", "environment_id"])
    op.create_table(
        "sweep_task",
        sa.Column("sweep_id", sa.String(length=16), nullable=False),
        sa.Column("task_id", sa.String(length=64), nullable=False),
        sa.Column("uses", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], name="fk_sweep_task_sweep_id_sweep"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="fk_sweep_task_task_id_task"),
        sa.PrimaryKeyConstraint("sweep_id", "task_id", name="pk_sweep_task"),
    )
    op.create_index("ix_sweep_task_task_id", "sweep_task", ["task_id"])
    op.create_table(
        "candidate_task",
        sa.Column("candidate_id", sa.String(length=64), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.String(length=64), nullable=False),
        sa.Column("result_id", sa.String(length=16), nullable=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["candidate_id"], ["candidate.id"], name="fk_candidate_task_candidate_id_candidate"),
        sa.ForeignKeyConstraint(["task_id"], ["task.id"], name="fk_candidate_task_task_id_task"),
        sa.ForeignKeyConstraint(["result_id"], ["task_result.id"], name="fk_candidate_task_result_id_task_result"),
        sa.PrimaryKeyConstraint("candidate_id", "number", name="pk_candidate_task"),
    )
    op.create_index("ix_candidate_task_task_id", "candidate_task", ["task_id"])
    op.create_index("ix_candidate_task_result_id", "candidate_task", ["result_id"])
