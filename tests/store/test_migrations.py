"""The way from every older schema to the newest, and that the newest is what the models say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from samples import Filled, candidate
from sqlalchemy import insert, inspect, select

import kgen.store
from kgen.protocol import Status
from kgen.store import Database, connections, models, queries, schema

FOLDER = Path(kgen.store.__file__).parent / "migrations"


def differences(database: Database) -> list[Any]:
    options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
    with database.connections.read() as connection:
        context = MigrationContext.configure(connection, opts=options)
        return compare_metadata(context, models.Base.metadata)


def test_revisions_known_without_alembic_are_all_there_are() -> None:
    revisions = [script.revision for script in ScriptDirectory(str(FOLDER)).walk_revisions()]
    assert tuple(reversed(revisions)) == schema.REVISIONS


def test_new_database_is_what_the_models_say(database: Database) -> None:
    assert differences(database) == []


def make_older(url: str, revision: str) -> None:
    """Make the database that a kgen of this revision would have made."""
    older = connections.Connections(url)
    schema.migrate(older, revision)
    older.close()


@pytest.mark.parametrize("revision", schema.REVISIONS)
def test_database_of_an_older_revision_becomes_what_the_models_say(empty_url: str, revision: str) -> None:
    make_older(empty_url, revision)
    with Database.open(empty_url, create=False) as database:
        assert differences(database) == []
        assert Filled(database).sweep


def copy_rows(newer: Database, url: str) -> None:
    """Fill the tables of an older database with what a newer one has in those columns."""
    older = connections.Connections(url)
    with newer.connections.read() as source, older.write() as target:
        there = inspect(target).get_table_names()
        for table in (table for table in models.Base.metadata.sorted_tables if table.name in there):
            columns = [table.c[column["name"]] for column in inspect(target).get_columns(table.name)]
            rows = [dict(row._mapping) for row in source.execute(select(*columns))]
            if rows:
                target.execute(insert(table), rows)
    older.close()


@pytest.mark.parametrize("revision", schema.REVISIONS)
def test_rows_of_an_older_revision_are_kept(filled: Filled, empty_url: str, revision: str) -> None:
    filled.finish(candidate("right"), 1.4, 1.5, 1.6)
    filled.judge(candidate("wrong"), Status.WRONG_VALUES)
    make_older(empty_url, revision)
    copy_rows(filled.database, empty_url)
    with Database.open(empty_url) as database:
        assert queries.sweep(database, filled.sweep) == queries.sweep(filled.database, filled.sweep)
        for text in ("right", "wrong"):
            found = queries.candidate(database, candidate(text).id)
            assert found.judgements and found == queries.candidate(filled.database, candidate(text).id)


def test_database_that_is_up_to_date_is_opened_without_alembic(database: Database, url: str) -> None:
    code = (
        "import sys; from kgen.store import Database; Database.open(sys.argv[1]).close(); "
        "sys.exit('alembic' in sys.modules or 'torch' in sys.modules)"
    )
    folder = Path(kgen.store.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code, url], cwd=folder).returncode == 0


def test_every_constraint_and_index_has_a_name() -> None:
    tables = models.Base.metadata.tables.values()
    assert all(constraint.name for table in tables for constraint in table.constraints)
    assert all(index.name for table in tables for index in table.indexes)
