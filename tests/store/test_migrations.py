"""The way from every older schema to the newest, and that the newest is what the models say."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from samples import Filled, candidate

import kgen.store
from kgen.evaluator.protocol import Status
from kgen.store import Store, database, models, queries, schema

FOLDER = Path(kgen.store.__file__).parent / "migrations"


def differences(store: Store) -> list[Any]:
    options = {"version_table": schema.VERSION_TABLE, "compare_type": True}
    with store.database.read() as connection:
        context = MigrationContext.configure(connection, opts=options)
        return compare_metadata(context, models.Base.metadata)


def test_revisions_known_without_alembic_are_all_there_are() -> None:
    revisions = [script.revision for script in ScriptDirectory(str(FOLDER)).walk_revisions()]
    assert tuple(reversed(revisions)) == schema.REVISIONS


def test_new_database_is_what_the_models_say(store: Store) -> None:
    assert differences(store) == []


@pytest.mark.parametrize("revision", schema.REVISIONS)
def test_database_of_an_older_revision_becomes_what_the_models_say(path: Path, revision: str) -> None:
    older = database.Database(f"sqlite:///{path}")
    schema.migrate(older, revision)
    older.close()
    with Store.open(str(path), create=False) as store:
        assert differences(store) == []
        assert Filled(store).sweep


def copy_rows(newer: Path, older: Path) -> None:
    """Fill the tables of an older database with what a newer one has in those columns."""
    with closing(sqlite3.connect(older)) as connection, connection:
        connection.execute("ATTACH ? AS newer", (str(newer),))
        for table in models.Base.metadata.sorted_tables:
            columns = ", ".join(row[1] for row in connection.execute(f"PRAGMA main.table_info({table.name})"))
            connection.execute(f"INSERT INTO main.{table.name} ({columns}) SELECT {columns} FROM newer.{table.name}")


@pytest.mark.parametrize("revision", schema.REVISIONS)
def test_rows_of_an_older_revision_are_kept(filled: Filled, path: Path, tmp_path: Path, revision: str) -> None:
    filled.finish(candidate("right"), 1.4, 1.5, 1.6)
    filled.judge(candidate("wrong"), Status.WRONG_VALUES)
    older = database.Database(f"sqlite:///{tmp_path / 'older.db'}")
    schema.migrate(older, revision)
    older.close()
    copy_rows(path, tmp_path / "older.db")
    with Store.open(str(tmp_path / "older.db")) as store:
        assert queries.sweep(store, filled.sweep) == queries.sweep(filled.store, filled.sweep)
        for text in ("right", "wrong"):
            found = queries.candidate(store, candidate(text).id)
            assert found.judgements and found == queries.candidate(filled.store, candidate(text).id)


def test_database_that_is_up_to_date_is_opened_without_alembic(store: Store, path: Path) -> None:
    code = (
        "import sys; from kgen.store import Store; Store.open(sys.argv[1]).close(); "
        "sys.exit('alembic' in sys.modules or 'torch' in sys.modules)"
    )
    folder = Path(kgen.store.__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code, str(path)], cwd=folder).returncode == 0


def test_every_constraint_and_index_has_a_name() -> None:
    tables = models.Base.metadata.tables.values()
    assert all(constraint.name for table in tables for constraint in table.constraints)
    assert all(index.name for table in tables for index in table.indexes)
