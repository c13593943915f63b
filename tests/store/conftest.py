"""Databases to test with: the same tests run on an SQLite file and on a PostgreSQL server.

SQLite has all parameters of a test, PostgreSQL the first and the last ones: the others are exhaustive.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from samples import Filled

from kgen.store import Database

BACKENDS = ("sqlite", "postgresql")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    tests: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent and "postgresql" in item.name:
            tests.setdefault((item.path, item.originalname), []).append(item)
    for _, *between, _ in (found for found in tests.values() if len(found) > 2):
        for item in between:
            item.add_marker(pytest.mark.exhaustive)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the file of an SQLite database is, or may be made."""
    return tmp_path / "kgen.db"


@pytest.fixture(params=BACKENDS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database with the newest schema and no row; a test module may ask for one kind alone."""
    if request.param == "sqlite":
        made = shutil.copy(request.getfixturevalue("newest"), request.getfixturevalue("path"))
        yield f"sqlite:///{made}"
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    with server.newest() as made:
        yield made


@pytest.fixture(params=BACKENDS)
def empty_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A database without any table."""
    if request.param == "sqlite":
        yield f"sqlite:///{request.getfixturevalue('tmp_path')}/empty.db"
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    with server.empty() as made:
        yield made


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with Database.open(url) as opened:
        yield opened


@pytest.fixture
def filled(database: Database) -> Filled:
    return Filled(database)
