"""The page on the schema names every column, and its queries run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from samples import Filled, candidate

from kgen.protocol import Status
from kgen.store import Database, models

PAGE = (Path(__file__).parents[2] / "docs" / "schema.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


def columns_on_the_page(table: str) -> set[str]:
    section = re.search(rf"^### {table}\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE)
    assert section, f"no section on {table}"
    named = [row.split("|")[1] for row in section[1].splitlines() if row.startswith("| `")]
    return {name for cell in named for name in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("table", models.Base.metadata.tables)
def test_page_explains_each_column_and_no_other(table: str) -> None:
    assert columns_on_the_page(table) == set(models.Base.metadata.tables[table].columns.keys())


def test_page_has_three_queries() -> None:
    assert len(QUERIES) == 3


@pytest.mark.parametrize("query", QUERIES)
def test_query_of_the_page_finds_something(query: str) -> None:
    with Database.open() as database:
        filled = Filled(database)
        filled.finish(candidate("right"), 1.4, 1.5, 1.6)
        filled.judge(candidate("wrong"), Status.WRONG_VALUES)
        with database.connections.read() as connection:
            assert len(connection.exec_driver_sql(query).all()) == 1


def test_parameters_are_queried_by_name() -> None:
    with Database.open() as database:
        Filled(database).judge(candidate(block=256))
        with database.connections.read() as connection:
            query = "SELECT json_extract(params, '$.\"k0.block\"') FROM candidate"
            assert connection.exec_driver_sql(query).scalar() == 256
