"""Rows that other rows name and that are missing, because somebody deleted them by hand.

PostgreSQL refuses to delete such rows. SQLite does so only for programs that ask for it, and its own shell does not.
"""

from __future__ import annotations

import math
import sqlite3
import time
from contextlib import suppress
from typing import Any

from kgen.errors import DatabaseError
from kgen.store import models
from kgen.store.connections import Connections

OPEN_SECONDS = 0.1  #: seconds; limit of the check when a database is opened; enough for thousands of evaluations
_STEPS = 10_000  # of SQLite's machine, between looks at the clock
_WITHOUT_SOURCE = "SELECT count(*) FROM candidate WHERE id NOT IN (SELECT candidate_id FROM source)"


def check(connections: Connections, seconds: float = math.inf) -> None:
    """Raise :class:`DatabaseError` where rows are missing. After ``seconds``, the rest of a large database is left
    out."""
    if not connections.is_sqlite:
        return
    until = time.monotonic() + seconds
    with connections.read() as connection, suppress(_TimeIsUp):
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
        try:
            missing = _first_missing(driver)
        finally:
            driver.set_progress_handler(None, 0)
        if missing:
            raise DatabaseError(
                f"{connections.name}: the database is damaged: {missing}; restore a copy, or name another database "
                "with --db"
            )


class _TimeIsUp(Exception):
    """The check took longer than it may."""


def _first_missing(driver: sqlite3.Connection) -> str:
    """The first missing rows, in words; an empty text where there are none."""
    try:
        for table in models.Base.metadata.sorted_tables:
            found = driver.execute(f"PRAGMA foreign_key_check({table.name})").fetchall()
            if found:
                parent = found[0][2]
                count = sum(row[2] == parent for row in found)
                return f"{count} rows of {table.name} name rows of {parent} that are missing"
        [count] = driver.execute(_WITHOUT_SOURCE).fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise _TimeIsUp from error
        raise
    return f"{count} rows of candidate have no row of source" if count else ""
