"""Histories to report on, as a database, as a section, and as a database that two problems fill."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from histories import History, fill
from samples import environment, problem

from kgen.protocol import Accuracy
from kgen.store import Database
from kgen.views.report import sections
from kgen.views.report.sections import Section


@pytest.fixture
def database(tmp_path: Path, newest: Path) -> Iterator[Database]:
    with Database.open(str(shutil.copy(newest, tmp_path / "kgen.db"))) as opened:
        yield opened


@pytest.fixture
def history(database: Database) -> History:
    return History(database)


@pytest.fixture
def section(history: History) -> Section:
    fill(history)
    [found] = sections.collect(history.database)
    return found


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of two problems that are filled, one of them in two classes of accuracy."""
    db = tmp_path_factory.mktemp("reported") / "kgen.db"
    with Database.open(str(db)) as database:
        fill(History(database, problem("another", source="another source"), environment("another cpu")))
        fill(History(database))
        History(database, accuracy=Accuracy.TF32).add(1.7, block=128, vec=4)
    return db
