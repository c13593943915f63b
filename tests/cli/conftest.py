"""A folder to type commands in, and databases with something to answer from."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from samples import SOURCE, Filled, candidate

from kgen.candidate import Rejection
from kgen.protocol import Status
from kgen.store import Database

if TYPE_CHECKING:
    from kgen.evaluator.runtime.process import Server


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in, with one problem file that a name finds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")  # cells of most rows are not folded
    (tmp_path / "problems").mkdir()
    (tmp_path / "problems" / "made_up.py").write_text(SOURCE)
    return tmp_path


@pytest.fixture
def filled(kgen_home: Path, newest: Path) -> Iterator[Filled]:
    kgen_home.mkdir()
    shutil.copy(newest, kgen_home / "kgen.db")
    with Database.open() as database:
        yield Filled(database)


@pytest.fixture
def won(filled: Filled) -> Filled:
    """A finished sweep with a winner, a failure and a rejection."""
    filled.finish(candidate("winner"), 1.4, 1.5, 1.6)
    filled.judge(candidate("wrong"), Status.WRONG_VALUES, reason="row 3 is off")
    filled.database.add_rejections(filled.sweep, [Rejection("a plan", {}, "threads", "1024 at most")])
    filled.database.finish_sweep(filled.sweep, "finished", 61.0, candidate("winner").id)
    return filled


@pytest.fixture(scope="session")
def server_of_plans(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A fork server that has loaded what captures need."""
    from lending import CAPTURING

    from kgen.evaluator.runtime.process import Server

    server = Server(tmp_path_factory.mktemp("plans"), {}, first=CAPTURING)
    yield server
    server.close()


@pytest.fixture(scope="module")
def one_server_of_plans(server_of_plans: Server) -> Iterator[None]:
    """Commands that capture a problem share one fork server."""
    from lending import one_server_of_plans

    with one_server_of_plans(server_of_plans):
        yield
