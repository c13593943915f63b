"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "candidate",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("device_type", sa.String(length=16), nullable=False),
        sa.Column("kernels", sa.Integer(), nullable=False),
        sa.Column("source_lines", sa.Integer(), nullable=False),
        sa.Column("control", sa.Boolean(), nullable=False),
        sa.Column("origin", sa.String(length=16), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.Column("rewrites", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_candidate"),
    )
    op.create_index("ix_candidate_plan", "candidate", ["plan"])

    op.create_table(
        "environment",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("device_type", sa.String(length=16), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("arch", sa.String(), nullable=False),
        sa.Column("driver", sa.String(), nullable=False),
        sa.Column("toolkit", sa.String(), nullable=False),
        sa.Column("compiler", sa.String(), nullable=False),
        sa.Column("torch", sa.String(), nullable=False),
        sa.Column("python", sa.String(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("host", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_environment"),
    )
    op.create_table(
        "problem",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("mode", sa.String(length=8), nullable=False),
        sa.Column("default_mode", sa.Boolean(), nullable=False),
        sa.Column("source_hash", sa.String(length=64), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("overrides", sa.JSON(), nullable=False),
        sa.Column("health_passed_by", sa.JSON(), nullable=False),
        sa.Column("health_notes", sa.JSON(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_problem"),
    )
    op.create_index("ix_problem_name", "problem", ["name"])
    op.create_index("ix_problem_source_hash", "problem", ["source_hash"])

    op.create_table(
        "evaluation",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("candidate_id", sa.String(length=64), nullable=False),
        sa.Column("problem_id", sa.String(length=64), nullable=False),
        sa.Column("environment_id", sa.String(length=16), nullable=False),
        sa.Column("accuracy", sa.String(length=16), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("phase", sa.String(length=16), nullable=True),
        sa.Column("error_ratio", sa.Double(), nullable=True),
        sa.Column("median_ms", sa.Double(), nullable=True),
        sa.Column("binary_hash", sa.String(length=64), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("log", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.JSON(), nullable=False),
        sa.Column("build", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("errors", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["candidate_id"], ["candidate.id"], name="fk_evaluation_candidate_id_candidate"),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environment.id"], name="fk_evaluation_environment_id_environment"
        ),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name="fk_evaluation_problem_id_problem"),
        sa.PrimaryKeyConstraint("id", name="pk_evaluation"),
    )
    op.create_index("ix_evaluation_binary_hash", "evaluation", ["binary_hash"])
    op.create_index(
        "ix_evaluation_candidate_id_environment_id_accuracy",
        "evaluation",
        ["candidate_id", "environment_id", "accuracy"],
    )

    op.create_table(
        "source",
        sa.Column("candidate_id", sa.String(length=64), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["candidate_id"], ["candidate.id"], name="fk_source_candidate_id_candidate"),
        sa.PrimaryKeyConstraint("candidate_id", name="pk_source"),
    )
    op.create_table(
        "sweep",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("problem_id", sa.String(length=64), nullable=False),
        sa.Column("environment_id", sa.String(length=16), nullable=False),
        sa.Column("accuracy", sa.String(length=16), nullable=False),
        sa.Column("device", sa.String(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("combinations", sa.Integer(), nullable=False),
        sa.Column("budget", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("ended_at", sa.DateTime(), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("best", sa.String(length=64), nullable=True),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("kgen", sa.String(), nullable=False),
        sa.Column("arguments_hash", sa.String(length=64), nullable=False),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["best"], ["candidate.id"], name="fk_sweep_best_candidate"),
        sa.ForeignKeyConstraint(["environment_id"], ["environment.id"], name="fk_sweep_environment_id_environment"),
        sa.ForeignKeyConstraint(["problem_id"], ["problem.id"], name="fk_sweep_problem_id_problem"),
        sa.PrimaryKeyConstraint("id", name="pk_sweep"),
    )
    op.create_index("ix_sweep_problem_id_started_at", "sweep", ["problem_id", "started_at"])
    op.create_index("ix_sweep_started_at", "sweep", ["started_at"])

    op.create_table(
        "rejection",
        sa.Column("sweep_id", sa.String(length=16), nullable=False),
        sa.Column("key", sa.String(length=32), nullable=False),
        sa.Column("plan", sa.String(), nullable=False),
        sa.Column("constraint_name", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("params", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], name="fk_rejection_sweep_id_sweep"),
        sa.PrimaryKeyConstraint("sweep_id", "key", name="pk_rejection"),
    )
    op.create_table(
        "timing",
        sa.Column("id", sa.String(length=16), nullable=False),
        sa.Column("sweep_id", sa.String(length=16), nullable=False),
        sa.Column("evaluation_id", sa.String(length=16), nullable=True),
        sa.Column("environment_id", sa.String(length=16), nullable=False),
        sa.Column("accuracy", sa.String(length=16), nullable=False),
        sa.Column("subject", sa.String(length=64), nullable=False),
        sa.Column("depth", sa.String(length=16), nullable=False),
        sa.Column("session", sa.String(), nullable=False),
        sa.Column("median_ms", sa.Double(), nullable=True),
        sa.Column("prepare_ms", sa.Double(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("bursts", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["environment_id"], ["environment.id"], name="fk_timing_environment_id_environment"),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluation.id"], name="fk_timing_evaluation_id_evaluation"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], name="fk_timing_sweep_id_sweep"),
        sa.PrimaryKeyConstraint("id", name="pk_timing"),
    )
    op.create_index("ix_timing_evaluation_id", "timing", ["evaluation_id"])
    op.create_index("ix_timing_subject", "timing", ["subject"])
    op.create_index("ix_timing_sweep_id_subject", "timing", ["sweep_id", "subject"])

    op.create_table(
        "trial",
        sa.Column("sweep_id", sa.String(length=16), nullable=False),
        sa.Column("candidate_id", sa.String(length=64), nullable=False),
        sa.Column("evaluation_id", sa.String(length=16), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("taken_over", sa.Boolean(), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("tie", sa.Boolean(), nullable=False),
        sa.Column("median_ms", sa.Double(), nullable=True),
        sa.Column("speedup", sa.Double(), nullable=True),
        sa.Column("speedup_low", sa.Double(), nullable=True),
        sa.Column("speedup_high", sa.Double(), nullable=True),
        sa.Column("error_ratio", sa.Double(), nullable=True),
        sa.Column("baseline", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("baselines", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["candidate_id"], ["candidate.id"], name="fk_trial_candidate_id_candidate"),
        sa.ForeignKeyConstraint(["evaluation_id"], ["evaluation.id"], name="fk_trial_evaluation_id_evaluation"),
        sa.ForeignKeyConstraint(["sweep_id"], ["sweep.id"], name="fk_trial_sweep_id_sweep"),
        sa.PrimaryKeyConstraint("sweep_id", "candidate_id", name="pk_trial"),
    )
    op.create_index("ix_trial_candidate_id", "trial", ["candidate_id"])
    op.create_index("ix_trial_evaluation_id", "trial", ["evaluation_id"])
    op.create_index("ix_trial_sweep_id_final_speedup", "trial", ["sweep_id", "final", "speedup"])
    op.create_index("ix_trial_sweep_id_number", "trial", ["sweep_id", "number"])
    op.create_index("ix_trial_sweep_id_status_number", "trial", ["sweep_id", "status", "number"])
    op.create_index("ix_trial_sweep_id_taken_over", "trial", ["sweep_id", "taken_over"])
