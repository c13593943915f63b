"""The version of a database's schema, and its migration to the newest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kgen.errors import DatabaseError, DatabaseVersionError, NotFoundError
from kgen.store.connections import Connections

if TYPE_CHECKING:
    from sqlalchemy import Connection

#: All revisions in order; ``migrations/versions`` has a file for each. Known here without the import of Alembic.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")
HEAD = REVISIONS[-1]

#: The table of the revision. Its name is kgen's own, so that another program's database is recognised.
VERSION_TABLE = "kgen_version"

_MIGRATION_LOCK = 0x6B67656E  #: key of PostgreSQL's advisory lock for a migration; "kgen" in ASCII


def ensure(connections: Connections, create: bool) -> None:
    """Bring the database to the newest revision, in one transaction. A database at that revision stays untouched.

    Raises :class:`DatabaseVersionError` for a revision of a newer kgen and :class:`DatabaseError` for another program's
    database. Without ``create``, raises :class:`NotFoundError` for an empty database.
    """
    with connections.read() as connection:
        revision = _revision(connection, connections.name)
    if revision == HEAD:
        return
    if revision is None and not create:
        raise NotFoundError(f"{connections.name}: is empty: the first `kgen sweep PROBLEM` fills it")
    migrate(connections)


def migrate(connections: Connections, target: str = HEAD) -> None:
    """Run the migrations up to ``target``."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    with connections.write() as connection:
        if not connections.is_sqlite:  # a writer on SQLite locks the whole database anyway
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
        _revision(connection, connections.name)  # another process may have migrated it meanwhile
        config.attributes["connection"] = connection
        command.upgrade(config, target)


def _revision(connection: Connection, name: str) -> str | None:
    """The recorded revision, checked; ``None`` for an empty database."""
    from sqlalchemy import inspect

    tables = inspect(connection)
    if not tables.has_table(VERSION_TABLE):
        if tables.get_table_names():
            raise DatabaseError(f"{name}: belongs to another program; name another database with --db")
        return None
    revision = connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()
    if revision is None:
        raise DatabaseError(f"{name}: the database is damaged: {VERSION_TABLE} is empty; restore a copy")
    if revision not in REVISIONS:
        found = f"revision {revision}, this one knows {HEAD}"
        raise DatabaseVersionError(f"{name}: written by a newer kgen ({found}): update kgen")
    return revision
