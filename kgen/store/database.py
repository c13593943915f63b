"""Connections: how transactions begin, how long they wait for another process, and what a driver's error means.

Readers see the last committed state and block nobody. Writers begin with BEGIN IMMEDIATE, so that they wait at their
beginning and never fail halfway; the wait is told to people after a second, and given up after thirty.
"""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Iterator

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError

from kgen.errors import DiskError, KgenError, NotFoundError, StoreBusyError, StoreError
from kgen.store import codec

NOTICE_SECONDS = 1.0  #: a wait longer than this is told, in one line
WAIT_SECONDS = 30.0  #: a wait longer than this is given up

Notice = Callable[[str], None]


class Database:
    """An engine with the transactions that kgen needs. Raises :class:`StoreError` or :class:`DiskError`, nothing else.

    ``notice`` is given one line when a transaction waits for another process.
    """

    def __init__(self, url: str, notice: Notice | None = None, create: bool = True) -> None:
        self.engine = _engine(url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self.url = self.engine.url.render_as_string(hide_password=False)
        #: The database as people are shown it: a path, or a URL without its password.
        self.name = (self.engine.url.database or "memory") if self.is_sqlite else str(self.engine.url)
        self._notice = notice or (lambda line: None)
        if self.is_sqlite:
            _prepare_file(Path(self.name), create)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        with self._transaction(writes=False) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that writes: committed when the block ends, undone when it raises."""
        with self._transaction(writes=True) as connection:
            yield connection

    def close(self) -> None:
        """Give back all connections."""
        with self._translated():
            self.engine.dispose()

    @contextmanager
    def _transaction(self, writes: bool) -> Iterator[Connection]:
        with self._translated():
            connection = self._begun(writes)
            with connection:
                yield connection
                connection.commit()

    def _begun(self, writes: bool) -> Connection:
        """A connection with a transaction begun, however long that takes up to ``WAIT_SECONDS``."""
        started = time.monotonic()
        told = False
        while True:
            try:
                return self._begin(writes)
            except (DBAPIError, sqlite3.Error) as error:
                if not _is_busy(error) or time.monotonic() - started >= WAIT_SECONDS:
                    raise
            if not told:
                self._notice(f"{self.name}: another process holds the database; waiting up to {WAIT_SECONDS:.0f} s")
                told = True

    def _begin(self, writes: bool) -> Connection:
        connection = self.engine.connect()
        try:
            connection.execution_options(kgen_writes=writes).begin()
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Every error of the driver as one of kgen's own, with one line."""
        try:
            yield
        except (DBAPIError, sqlite3.Error) as error:
            raise self._meaning(error) from error

    def _meaning(self, error: Exception) -> KgenError:
        code = _sqlite_code(error)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreBusyError(
                f"{self.name}: locked by another process for over {WAIT_SECONDS:.0f} s; try again when it has ended"
            )
        if code in _MEANINGS:
            kind, text = _MEANINGS[code]
            return kind(f"{self.name}: {text}")
        return StoreError(f"{self.name}: {_first_line(error)}")


_MEANINGS: dict[int, tuple[type[KgenError], str]] = {
    sqlite3.SQLITE_NOTADB: (StoreError, "is not a kgen database; name another with --db"),
    sqlite3.SQLITE_CORRUPT: (StoreError, "is damaged; restore a copy, or name another database with --db"),
    sqlite3.SQLITE_FULL: (DiskError, "cannot be written: the disk is full"),
    sqlite3.SQLITE_READONLY: (DiskError, "cannot be written: the file or its folder is read-only"),
    sqlite3.SQLITE_CANTOPEN: (DiskError, "cannot be opened; is its folder there and writable?"),
    sqlite3.SQLITE_IOERR: (DiskError, "cannot be read or written: the disk reports an error, or is full"),
    sqlite3.SQLITE_PERM: (DiskError, "cannot be opened: permission denied"),
}


def _engine(url: str) -> Engine:
    shown = re.sub("//[^@/]*@", "//", url)  # a password is not for the screen
    try:
        parsed = make_url(url)
        options: dict[str, Any] = {}
        if parsed.get_backend_name() == "sqlite":
            options["connect_args"] = {"timeout": NOTICE_SECONDS, "isolation_level": None}
        engine = create_engine(parsed, json_serializer=codec.dumps, **options)
    except (ArgumentError, NoSuchModuleError) as error:
        raise StoreError(f"{shown}: is no database URL or path ({_first_line(error)})") from error
    except ImportError as error:
        raise StoreError(f"{shown}: needs the Python module {error.name!r}, which is not installed") from error
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _on_sqlite_connect)
        event.listen(engine, "begin", _on_sqlite_begin)
    return engine


def _on_sqlite_connect(connection: sqlite3.Connection, record: object) -> None:
    # Asked first: turning WAL on takes a lock, and answers "busy" without waiting.
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _on_sqlite_begin(connection: Connection) -> None:
    if connection.get_execution_options().get("kgen_writes"):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql("BEGIN")
        # The snapshot is taken by the first read: here, where a lock is waited for.
        connection.exec_driver_sql("PRAGMA schema_version")


def _prepare_file(path: Path, create: bool) -> None:
    """The database's folder, made where the database may be; an error where it may not, and is not there."""
    if path.exists():
        return
    if not create:
        raise NotFoundError(f"no database at {path} yet: the first `kgen sweep PROBLEM` makes it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiskError(f"{path.parent}: cannot be made: {error.strerror or error}") from error


def _is_busy(error: Exception) -> bool:
    return _sqlite_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _sqlite_code(error: Exception) -> int | None:
    """The primary result code of SQLite, without the extension in its upper bits."""
    code = getattr(getattr(error, "orig", error), "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
