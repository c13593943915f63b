"""The shapes of what is printed for people: facts in two columns, and tables."""

from __future__ import annotations

from typing import Iterable

from rich.console import Console
from rich.table import Table

SPEEDUP = "speedup"  #: heading of the one figure that may wrap: its interval goes below it


def print_facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, value)
    console.print(table)


def grid(*columns: str) -> Table:
    """A table with these headings; one that begins with ``> `` is aligned to the right.

    On a narrow terminal texts and intervals go over several lines, but no heading, id or plain figure does.
    """
    table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
    for column in columns:
        heading = column.removeprefix("> ")
        right = heading != column
        table.add_column(
            heading,
            justify="right" if right else "left",
            no_wrap=heading in ("sweep", "candidate") or (right and heading != SPEEDUP),
            min_width=len(heading),
            overflow="fold",
        )
    return table
