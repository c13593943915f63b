"""Questions in SQL are answered, and nothing is changed by any."""

from __future__ import annotations

from pathlib import Path

import pytest
from samples import Filled, candidate

from kgen.errors import KgenError
from kgen.store import Database, models, queries, sql


def ask(database: Database, query: str) -> tuple[tuple[str, ...], list[tuple[object, ...]]]:
    with sql.ask(database, query) as answer:
        return answer.columns, list(answer.rows)


def test_answer_has_names_and_rows(filled: Filled) -> None:
    assert ask(filled.database, "SELECT id, 1 AS one FROM sweep") == (("id", "one"), [(filled.sweep, 1)])


def test_answer_without_a_row_has_names(filled: Filled) -> None:
    assert ask(filled.database, "SELECT id FROM sweep WHERE 1 = 0") == (("id",), [])


def test_percent_sign_is_no_placeholder(filled: Filled) -> None:
    assert ask(filled.database, "SELECT '50%s' AS half")[1] == [("50%s",)]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM sweep",
        "UPDATE sweep SET state = 'failed'",
        "INSERT INTO source VALUES ('a', 'b')",
        "DROP TABLE timing",
        "CREATE TABLE more (x INTEGER)",
        "SELECT 1; DELETE FROM sweep",
        "SELECT 1; COMMIT; DELETE FROM sweep",
        "WITH gone AS (DELETE FROM timing RETURNING id) SELECT * FROM gone",
        "BEGIN",
        "COMMIT",
        "ATTACH '{folder}/other.db' AS other",
        "VACUUM INTO '{folder}/other.db'",
        "COPY sweep TO '{folder}/other.db'",
        "SELECT set_config('transaction_read_only', 'off', true); DELETE FROM sweep",
        "SET TRANSACTION READ WRITE",
        "PRAGMA query_only = OFF",
        "PRAGMA journal_mode = DELETE",
        "",
        "nonsense",
        "SELECT nothing FROM sweep",
    ],
)
def test_what_is_no_question_is_refused_in_one_line_and_changes_nothing(
    filled: Filled, tmp_path: Path, statement: str
) -> None:
    filled.judge(candidate())
    tmp_path.chmod(0o777)
    before = queries.sweep(filled.database, filled.sweep)
    with pytest.raises(KgenError) as raised:
        ask(filled.database, statement.format(folder=tmp_path))
    assert "\n" not in str(raised.value)
    assert queries.sweep(filled.database, filled.sweep) == before
    assert not (tmp_path / "other.db").exists()


def test_schema_names_every_table() -> None:
    assert sql.schema().keys() == models.Base.metadata.tables.keys()
    assert "# The database" in sql.schema_page()
