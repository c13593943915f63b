"""A copy of a whole database as an SQLite file, for tools that read only SQLite."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import insert, select

from kgen.store.connections import Connections
from kgen.store.database import Database
from kgen.store.models import Base

_ROWS = 1000  #: rows; held in memory at a time


def snapshot(database: Database, file: Path) -> None:
    """Write every table of ``database`` to the new SQLite database ``file``.

    One read-only transaction reads all tables: the copy shows one moment, and blocks nobody.
    """
    copy = Connections(f"sqlite:///{file}")
    try:
        with database.connections.read() as source, copy.write() as target:
            Base.metadata.create_all(target)
            for table in Base.metadata.sorted_tables:
                found = source.execution_options(stream_results=True).execute(select(table))
                for rows in found.mappings().partitions(_ROWS):
                    target.execute(insert(table), [dict(row) for row in rows])
    finally:
        copy.close()
