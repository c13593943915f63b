"""Read-only questions in SQL: the database itself refuses to write.

SQLite: the file is opened for reading. An authorizer allows only reads of tables and calls of functions, so that no
other file can be attached. PostgreSQL: a read-only transaction, through a protocol that takes one statement.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator

from kgen.errors import InputError
from kgen.store import connections
from kgen.store.database import Database
from kgen.store.models import Base

#: The actions that a statement may take on an SQLite database.
_READS = {
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
}


@dataclass(frozen=True)
class Answer:
    """The names of the columns, and the rows, which are read one by one."""

    columns: tuple[str, ...]
    rows: Iterator[tuple[Any, ...]]


@contextmanager
def ask(database: Database, query: str) -> Iterator[Answer]:
    """The answer to one reading statement. Raises :class:`InputError` with the database's message for any other one."""
    run = _sqlite if database.connections.is_sqlite else _postgresql
    try:
        with run(database.connections, query) as answer:
            yield answer
    except (database.connections.driver_error, sqlite3.Warning) as error:
        if database.connections.is_known(error):
            raise database.connections.meaning(error) from error
        raise InputError(f"{_words(error)} (tables and columns: kgen sql --schema)") from error


def schema_page() -> str:
    """The text of ``docs/schema.md``, which is part of the installed package."""
    package = Path(__file__).parents[1]
    installed = package / "schema.md"
    page = installed if installed.is_file() else package.parent / "docs" / "schema.md"
    return page.read_text(encoding="utf-8")


def schema() -> dict[str, list[str]]:
    """The names of all tables and their columns."""
    return {table.name: list(table.columns.keys()) for table in Base.metadata.sorted_tables}


def columns() -> list[dict[str, str]]:
    """One row for each column of each table."""
    return [{"table": table, "column": column} for table, names in schema().items() for column in names]


@contextmanager
def _sqlite(opened: connections.Connections, query: str) -> Iterator[Answer]:
    with closing(
        sqlite3.connect(connections.address(Path(opened.name)), uri=True, timeout=connections.WAIT_SECONDS)
    ) as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.set_authorizer(_authorize)
        yield _answer(cursor := connection.execute(query), cursor)


def _authorize(action: int, *subject: object) -> int:
    return sqlite3.SQLITE_OK if action in _READS else sqlite3.SQLITE_DENY


@contextmanager
def _postgresql(opened: connections.Connections, query: str) -> Iterator[Answer]:
    with opened.read() as connection:
        connection.exec_driver_sql("SELECT 1")  # after this, no statement can make the transaction a writing one
        # A server-side cursor takes queries only, and no COPY, which writes files of the server.
        cursor: Any = connection.connection.cursor(name="kgen")
        with closing(cursor):
            yield _answer(cursor.execute(query), cursor)


def _answer(cursor: Any, rows: Iterator[tuple[Any, ...]]) -> Answer:
    if cursor.description is None:
        raise InputError("the statement gives no rows: `kgen sql` reads, with one SELECT")
    return Answer(tuple(column[0] for column in cursor.description), rows)


def _words(error: Exception) -> str:
    text = str(error).strip()
    if text in ("not authorized", "authorization denied") or "not authorized to use" in text:
        return "`kgen sql` only reads: the statement may neither change the database nor open another one"
    return text.splitlines()[0] if text else type(error).__name__
