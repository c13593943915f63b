"""A PostgreSQL server of the tests' own: started once, reached through a socket in a temporary folder, ended with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What makes a server fast whose data nobody needs after a crash.
_FAST = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "listen_addresses": "",
}

#: PostgreSQL refuses to run as root: users that it may run as there, the first that exists.
_USERS = ("postgres", "nobody")

NEWEST = "newest"  #: a database with kgen's newest schema
EMPTY = "empty"  #: a database without a table

PASSWORD = "open sesame"  #: of the user ``secretive``, who is asked for one


class Missing(Exception):
    """There is no PostgreSQL here, or no driver for it; the reason in one line."""


@dataclass(frozen=True)
class Server:
    """A running server. Its databases are emptied, not dropped and made again, which takes much longer."""

    folder: Path

    def url(self, database: str, user: str = "kgen", password: str | None = None) -> str:
        secret = f":{password}" if password is not None else ""
        return f"postgresql+psycopg://{user}{secret}@/{database}?host={self.folder}"

    def run(self, statements: str, database: str = "postgres") -> None:
        """Run statements, each committed at once."""
        import psycopg

        options = "-c statement_timeout=20000"  # what waits longer waits for a connection that a test left open
        where = {"host": str(self.folder), "user": "kgen", "dbname": database, "options": options}
        with psycopg.connect(**where, autocommit=True) as connection:
            connection.execute(statements)

    @contextmanager
    def newest(self) -> Iterator[str]:
        """The URL of a database with the newest schema and no row."""
        from kgen.store.models import Base

        yield self.url(NEWEST)
        tables = reversed(Base.metadata.sorted_tables)
        self.run("".join(f"DELETE FROM {table.name};" for table in tables), NEWEST)

    @contextmanager
    def empty(self) -> Iterator[str]:
        """The URL of a database without a table."""
        yield self.url(EMPTY)
        self.run("DROP SCHEMA public CASCADE; CREATE SCHEMA public", EMPTY)


@contextmanager
def server() -> Iterator[Server]:
    """A server with fresh data, which ends with the block. Raises :class:`Missing` where there is none."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise Missing("psycopg is not installed") from error
    programs = _programs()
    user = _user()
    folder = Path(tempfile.mkdtemp(prefix="kgen-pg-"))  # short: the path of a socket may have 107 characters
    data = folder / "data"
    if user:
        shutil.chown(folder, user["user"])
    control = [str(programs / "pg_ctl"), "-D", str(data), "-s", "-w"]
    try:
        _run([str(programs / "initdb"), "-D", str(data), "-U", "kgen", "-A", "trust", "-N", "-E", "UTF8"], user)
        (data / "pg_hba.conf").write_text("local all secretive scram-sha-256\nlocal all all trust\n")
        options = " ".join([f"-k {folder}", *(f"-c {name}='{value}'" for name, value in _FAST.items())])
        _run([*control, "-l", str(folder / "log"), "-o", options, "start"], user)
        try:
            started = Server(folder)
            started.run(f"CREATE USER secretive PASSWORD '{PASSWORD}'")
            for database in (NEWEST, EMPTY):
                started.run(f"CREATE DATABASE {database}")
            yield started
        finally:
            _run([*control, "-m", "immediate", "stop"], user)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _programs() -> Path:
    """The folder of the newest server's programs."""
    on_path = shutil.which("initdb")
    found = [Path(on_path).resolve().parent] if on_path else []
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: path.parts[-2].zfill(4), reverse=True)
    for folder in found:
        if (folder / "initdb").is_file() and (folder / "pg_ctl").is_file():
            return folder
    raise Missing("PostgreSQL is not installed")


def _user() -> Mapping[str, Any]:
    """As whom to run the server, for :mod:`subprocess`: another one where this is root."""
    if os.geteuid() != 0:
        return {}
    import pwd

    names = {entry.pw_name for entry in pwd.getpwall()}
    name = next((name for name in _USERS if name in names), None)
    if name is None:
        raise Missing("PostgreSQL does not run as root, and there is no other user here")
    return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": ()}


def _run(command: list[str], user: Mapping[str, Any]) -> None:
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    done = subprocess.run(command, cwd="/", env=environment, text=True, **quiet, **user)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
