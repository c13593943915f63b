"""Kernel tasks, as tables for people and as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from kgen.store.kernel_task import Variant
from kgen.store.tasks import StepRow, TaskRow
from kgen.views import text
from kgen.views.layout import grid


def listed(console: Console, rows: Sequence[TaskRow]) -> None:
    """A listing of tasks."""
    table = grid(
        "task", "step", "device", "class", "> sweeps", "> right", "> ms", "> library", "> of limit", "fastest variant"
    )
    for row in rows:
        table.add_row(
            text.short(row.id),
            row.label,
            row.device,
            row.accuracy,
            str(row.sweeps),
            f"{row.right}/{row.tried}",
            _ms(row.ms),
            _ms(row.library_ms),
            _share(row.of_limit),
            row.best.name if row.best else text.MISSING,
        )
    console.print(table)


def steps(console: Console, rows: Sequence[StepRow]) -> None:
    """The steps of a candidate."""
    table = grid("step", "task", "> ms", "> share", "> of limit", "kernel", "variant, or why a library call")
    for row in rows:
        how = row.reason or (row.variant.name if row.variant else "not measured alone")
        table.add_row(
            row.name, text.short(row.task), _ms(row.ms), _share(row.share), _share(row.of_limit), row.label, how
        )
    console.print(table)


def plain_task(row: TaskRow) -> dict[str, Any]:
    """A task as plain values."""
    return {**_named(vars(row), "best", row.best), "of_limit": row.of_limit}


def plain_step(row: StepRow) -> dict[str, Any]:
    """A step of a candidate as plain values."""
    return {**_named(vars(row), "variant", row.variant), "of_limit": row.of_limit}


def _named(fields: dict[str, Any], name: str, variant: Variant | None) -> dict[str, Any]:
    """The fields, with a variant as its schedule and its parameters."""
    return {**fields, name: variant and {"schedule": variant.schedule, "params": dict(variant.params)}}


def _ms(value: float | None) -> str:
    return text.figure(value)


def _share(value: float | None) -> str:
    return text.MISSING if value is None else f"{value:.0%}"
