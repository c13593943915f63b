"""Connections: the start of transactions, the wait for another process, and the meaning of a driver's errors.

A reader sees one committed state from its beginning to its end, and blocks nobody. On SQLite a writer begins with BEGIN
IMMEDIATE: it waits at its beginning and never fails halfway. A wait is announced after ``NOTICE_SECONDS`` and given up
after ``WAIT_SECONDS``. On PostgreSQL writers wait for single rows, with the same limits.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Callable, Iterator
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError

from kgen.errors import DatabaseBusyError, DatabaseError, DiskError, KgenError, NotFoundError
from kgen.store import codec
from kgen.store.interrupts import put_off

NOTICE_SECONDS = 1.0  #: seconds; a longer wait is announced in one line
WAIT_SECONDS = 30.0  #: seconds; a longer wait is given up
_LOOK_SECONDS = 0.1  # seconds; between looks for an interrupt
CONNECT_SECONDS = 10  #: seconds; limit of a server's first answer

Notice = Callable[[str], None]


class Connections:
    """An engine with the transactions that kgen needs. Raises only :class:`DatabaseError` and :class:`DiskError`.

    ``notice`` receives one line when a transaction waits for another process.
    """

    def __init__(self, url: str, notice: Notice | None = None, create: bool = True) -> None:
        self.engine = _engine(url)
        self.is_sqlite = self.engine.dialect.name == "sqlite"
        self.url = self.engine.url.render_as_string(hide_password=False)
        #: The database in messages: a path, or a URL without its password.
        self.name = (self.engine.url.database or "memory") if self.is_sqlite else shown(self.url)
        if self.is_sqlite and is_read_only(Path(self.name)):
            self.engine = _engine(f"sqlite:///{address(Path(self.name))}&uri=true")
        self._notice = notice or (lambda line: None)
        self._writing = threading.RLock()  # of this process, on SQLite
        self._together = threading.local()  # the connection of an open :meth:`together`
        if self.is_sqlite:
            _prepare_file(Path(self.name), create)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that only reads."""
        with self._transaction(writes=False) as connection:
            yield connection

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that writes. It commits when the block ends, and rolls back when the block raises."""
        if joined := getattr(self._together, "connection", None):
            yield joined
            return
        with self._transaction(writes=True) as connection:
            yield connection

    @contextmanager
    def together(self) -> Iterator[None]:
        """One transaction for every :meth:`write` of this thread within the block."""
        with self._transaction(writes=True) as connection:
            self._together.connection = connection
            try:
                yield
            finally:
                self._together.connection = None

    def shrink(self) -> None:
        """Return the space of deleted rows to the disk. While another process is at work, nothing happens."""
        with self._translated():
            connection: Any = self.engine.raw_connection()
            try:
                connection.driver_connection.execute("VACUUM")
            except sqlite3.OperationalError as error:
                if not _is_busy(error):
                    raise
            finally:
                connection.close()

    def close(self) -> None:
        """Give back all connections."""
        with self._translated():
            self.engine.dispose()

    @contextmanager
    def _transaction(self, writes: bool) -> Iterator[Connection]:
        # An interrupt between the begin and the block would leave the database locked while its traceback lives.
        with self._translated(), put_off() if writes else nullcontext(lambda: None) as interrupt:
            with self._alone(interrupt) if writes and self.is_sqlite else nullcontext():
                connection = self._begun(writes, interrupt)
                with connection:
                    yield connection
                    connection.commit()

    @contextmanager
    def _alone(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """One writer of this process at a time: SQLite would let a second writer sleep, for longer each time. After
        ``WAIT_SECONDS``, SQLite decides."""
        until = time.monotonic() + WAIT_SECONDS
        while not (held := self._writing.acquire(timeout=_LOOK_SECONDS)) and time.monotonic() < until:
            interrupt()
        try:
            yield
        finally:
            if held:
                self._writing.release()

    def _begun(self, writes: bool, interrupt: Callable[[], None]) -> Connection:
        """A connection with an open transaction, after a wait of up to ``WAIT_SECONDS``, in which ``interrupt`` may
        raise."""
        started = time.monotonic()
        told = False
        while True:
            try:
                return self._begin(writes)
            except (DBAPIError, sqlite3.Error) as error:
                if not _is_busy(error) or time.monotonic() - started >= WAIT_SECONDS:
                    raise
            interrupt()
            if not told:
                self._notice(f"{self.name}: another process holds the database; waiting up to {WAIT_SECONDS:.0f} s")
                told = True

    def _begin(self, writes: bool) -> Connection:
        connection = self.engine.connect()
        options = {"kgen_writes": writes} if self.is_sqlite else {} if writes else _POSTGRESQL_READS
        try:
            connection.execution_options(**options).begin()
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turns every error of the driver into one of kgen's own, with one line."""
        try:
            yield
        except (DBAPIError, sqlite3.Error) as error:
            raise self.meaning(error) from error

    @property
    def driver_error(self) -> type[Exception]:
        """The base class of the driver's errors, for statements that bypass SQLAlchemy."""
        return self.engine.dialect.loaded_dbapi.Error

    def is_known(self, error: Exception) -> bool:
        """Whether an error of the driver concerns the database, not a statement."""
        code = self._code(error)
        return code in _BUSY or code in _MEANINGS or code == _NO_CONNECTION

    def meaning(self, error: Exception) -> KgenError:
        """The error of kgen's own for an error of the driver."""
        code = self._code(error)
        if code in _BUSY:
            return DatabaseBusyError(
                f"{self.name}: locked by another process for over {WAIT_SECONDS:.0f} s; try again when it has ended"
            )
        if code in _MEANINGS:
            kind, text = _MEANINGS[code]
            return kind(f"{self.name}: {text}")
        if code == _NO_CONNECTION:
            return DatabaseError(
                f"{self.name}: no connection: {_first_line(error)}; does the server run, and are host, user, password "
                "and database of the URL right?"
            )
        return DatabaseError(f"{self.name}: {_first_line(error)}")

    def _code(self, error: Exception) -> int | str | None:
        return _sqlite_code(error) if self.is_sqlite else _sqlstate(error)


#: One state for all questions of a reader, and no writes.
_POSTGRESQL_READS = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}

_NO_CONNECTION = "08001"  #: stands for an error without an SQLSTATE: no server answered

#: Result codes of SQLite, and SQLSTATEs of PostgreSQL: "lock not available" and "deadlock detected".
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, "55P03", "40P01")
_MEANINGS: dict[int | str | None, tuple[type[KgenError], str]] = {
    sqlite3.SQLITE_NOTADB: (DatabaseError, "is not a kgen database; name another with --db"),
    sqlite3.SQLITE_CORRUPT: (DatabaseError, "is damaged; restore a copy, or name another database with --db"),
    sqlite3.SQLITE_FULL: (DiskError, "cannot be written: the disk is full"),
    sqlite3.SQLITE_READONLY: (DiskError, "cannot be written: the file or its folder is read-only"),
    sqlite3.SQLITE_CANTOPEN: (DiskError, "cannot be opened; is its folder there and writable?"),
    sqlite3.SQLITE_IOERR: (DiskError, "cannot be read or written: the disk reports an error, or is full"),
    sqlite3.SQLITE_PERM: (DiskError, "cannot be opened: permission denied"),
    "53100": (DiskError, "cannot be written: the server's disk is full"),
    "25006": (DatabaseError, "cannot be written: the server, or this user's transactions, are read-only"),
    "57P01": (DatabaseError, "the server was stopped; all results so far are kept: run the same command again"),
}


def is_read_only(path: Path) -> bool:
    """Whether an SQLite file lies in a folder where its companions cannot be made."""
    return path.exists() and not os.access(path.resolve().parent, os.W_OK)


def address(path: Path) -> str:
    """The URI of an SQLite file, to read it. In a read-only folder nobody changes it, unless a log lies beside it."""
    log = path.resolve().with_name(f"{path.resolve().name}-wal")
    unchanging = is_read_only(path) and not (log.exists() and log.stat().st_size)
    return f"file:{quote(str(path.resolve()))}?mode=ro{'&immutable=1' if unchanging else ''}"


def shown(url: str) -> str:
    """A database's URL without its password, for messages."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return re.sub("//.*@", "//", url).partition("?")[0]
    return parsed.difference_update_query(["password", "sslpassword"]).render_as_string(hide_password=True)


def _engine(url: str) -> Engine:
    if not url.startswith("sqlite") and url.count("@") > 1:
        # The driver would take the rest of the password for the host, and print it in its error.
        raise DatabaseError(f"{url.partition('//')[0]}//...: has more than one '@': write one in a password as %40")
    try:
        parsed = make_url(url)
        if parsed.drivername in ("postgres", "postgresql"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        engine = create_engine(parsed, json_serializer=codec.dumps, **_engine_options(parsed))
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise DatabaseError(f"{shown(url)}: is no database URL or path ({_first_line(error)})") from error
    except ImportError as error:
        remedy = "pip install 'kgen[postgresql]'" if "psycopg" in str(error.name) else f"pip install {error.name}"
        raise DatabaseError(f"{shown(url)}: needs the Python module {error.name!r}: {remedy}") from error
    if engine.dialect.name == "sqlite":
        reads = parsed.query.get("mode") == "ro"
        event.listen(engine, "connect", _on_sqlite_connect_to_read if reads else _on_sqlite_connect)
        event.listen(engine, "begin", _on_sqlite_begin)
    else:
        event.listen(engine, "begin", _on_postgresql_begin)
    return engine


def _engine_options(url: URL) -> dict[str, Any]:
    """The options of the driver: its waits, and transactions that begin only where kgen says so."""
    if url.get_backend_name() == "sqlite":
        return {"connect_args": {"timeout": NOTICE_SECONDS, "isolation_level": None}}
    if url.get_backend_name() != "postgresql":
        raise ArgumentError("kgen keeps its results in SQLite or PostgreSQL")
    return {
        "connect_args": {"connect_timeout": CONNECT_SECONDS},
        # Replaces a connection that the server closed, so that a sweep survives a restart of the server.
        "pool_pre_ping": True,
    }


def _on_sqlite_connect(connection: sqlite3.Connection, record: object) -> None:
    # Asks first, because turning WAL on takes a lock, and fails without waiting.
    if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
        connection.execute("PRAGMA journal_mode = WAL")
    _on_sqlite_connect_to_read(connection, record)


def _on_sqlite_connect_to_read(connection: sqlite3.Connection, record: object) -> None:
    connection.execute("PRAGMA foreign_keys = ON")


def _on_sqlite_begin(connection: Connection) -> None:
    if connection.get_execution_options().get("kgen_writes"):
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    else:
        connection.exec_driver_sql("BEGIN")
        # The first read takes the snapshot: here, where kgen waits for a lock.
        connection.exec_driver_sql("PRAGMA schema_version")


def _on_postgresql_begin(connection: Connection) -> None:
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = {round(1000 * WAIT_SECONDS)}")


def _prepare_file(path: Path, create: bool) -> None:
    """Make the database's folder where ``create`` is true. Raises :class:`NotFoundError` for no database otherwise."""
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


def _sqlstate(error: Exception) -> str | None:
    """PostgreSQL's code of an error. An error of the connection itself has no code."""
    code = getattr(getattr(error, "orig", error), "sqlstate", None)
    unreachable = code is None and isinstance(error, OperationalError)
    return _NO_CONNECTION if unreachable else code


def _first_line(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
