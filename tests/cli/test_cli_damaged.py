"""Databases in which rows are missing that other rows name."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from samples import Filled, candidate
from typed import kgen

from kgen.errors import DatabaseError
from kgen.store import Database, exchange, integrity
from kgen.store.selection import EVERY


@pytest.fixture
def complete(filled: Filled) -> Filled:
    """A finished sweep with a winner and a rejection."""
    filled.finish(candidate("winner"), 1.4, 1.5, 1.6)
    filled.database.finish_sweep(filled.sweep, "finished", 1.0, candidate("winner").id)
    return filled


def delete(database: Database, table: str) -> None:
    """Delete all rows of a table as SQLite's own shell does."""
    with closing(sqlite3.connect(database.name)) as connection, connection:
        connection.execute(f"DELETE FROM {table}")


@pytest.mark.parametrize("command", [["history"], ["best"], ["show", ""], ["export-history"], ["prune", "--failed"]])
@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("problem", "name rows of problem that are missing"),
        ("environment", "name rows of environment that are missing"),
        ("candidate", "name rows of candidate that are missing"),
        ("sweep", "name rows of sweep that are missing"),
        ("evaluation", "name rows of evaluation that are missing"),
        ("source", "1 rows of candidate have no row of source"),
        ("kgen_version", "kgen_version is empty"),
    ],
)
def test_database_with_missing_rows_is_told_as_damaged(
    complete: Filled, kgen_home: Path, table: str, words: str, command: list[str]
) -> None:
    delete(complete.database, table)
    answer = kgen(*(part or complete.sweep for part in command), "--db", complete.database.name)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "the database is damaged: " in answer.err and words in answer.err


def test_large_database_is_opened_after_a_part_of_the_check(complete: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integrity, "_STEPS", 1)
    delete(complete.database, "evaluation")
    integrity.check(complete.database.connections, -1.0)
    with pytest.raises(DatabaseError, match="damaged"):
        list(exchange.export(complete.database, among=EVERY))
