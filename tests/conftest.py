"""Shared by all tests: a folder of their own to write to, and the skipping of GPU tests where there is no GPU."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from running import SHORT_SWEEP, Ended, Home

# What a shell runs in the background ignores Ctrl-C, and so would the command lines that these tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu:
        return
    import torch

    if not torch.cuda.is_available():
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device here"))


@pytest.fixture(autouse=True)
def kgen_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ``KGEN_HOME`` for each test, so that none reads or writes the user's ``runs/``."""
    home = tmp_path / "runs"
    monkeypatch.setenv("KGEN_HOME", str(home))
    monkeypatch.delenv("KGEN_DB", raising=False)
    return home


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Home, Ended]:
    """A short sweep that found something faster: the folder that it ran in, and what it told as JSON."""
    home = Home(tmp_path_factory.mktemp("swept"))
    return home, home.kgen(*SHORT_SWEEP, "--budget", "4", "--time", "20", "--json")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A PostgreSQL server of the tests' own; what needs it is skipped where there is none."""
    from kgen.store import Database

    try:
        with postgres.server() as server:
            Database.open(server.url(postgres.NEWEST)).close()
            yield server
    except postgres.Missing as missing:
        pytest.skip(str(missing))
