"""Requests that come while others are committed share the next transaction."""

from __future__ import annotations

import shutil
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kgen.serve import together as module
from kgen.serve.together import Together
from kgen.store import Database, requests
from kgen.store.requests import StoredRequest


def request(id: str) -> list[StoredRequest]:
    return [StoredRequest("owner", id, "digest", 0, {"candidate": "x"})]


@pytest.fixture
def store(tmp_path: Path, newest: Path) -> Path:
    return Path(shutil.copy(newest, tmp_path / "kgen.db"))


def test_requests_that_wait_for_a_commit_share_the_next_one(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    first, go_on, add_all = threading.Event(), threading.Event(), requests.add_all

    def slow(database: Database, batches: Any) -> Any:
        written.append(len(batches))
        first.set()
        assert go_on.wait(30)
        return add_all(database, batches)

    monkeypatch.setattr(requests, "add_all", slow)
    with Database.open(str(store)) as database:
        together = Together(database)
        futures = [together.submit(lambda: request("0"), list)]
        assert first.wait(30)
        futures += [together.submit(partial(request, str(n)), list) for n in range(1, 6)]
        go_on.set()
        added = [future.result(30) for future in futures]
        assert written == [1, 5]
        assert [(one[0].id, is_new) for [*one, is_new] in (batch[0] for batch in added)] == [(str(n), True) for n in range(6)]
        assert all(requests.find(database, "owner", str(n)) for n in range(6))


def test_one_that_cannot_be_stored_costs_no_other_its_place(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_all = requests.add_all

    def failing(database: Database, batches: Any) -> Any:
        if any(batch[0].id == "bad" for batch in batches):
            raise ValueError("it cannot be stored")
        return add_all(database, batches)

    monkeypatch.setattr(requests, "add_all", failing)
    with Database.open(str(store)) as database:
        together = Together(database)
        names = [f"good {n}" for n in range(7)] + ["bad"]
        futures = {name: together.submit(partial(request, name), list) for name in names}
        assert all(futures[name].result(30)[0][1] for name in names[:-1])
        with pytest.raises(ValueError, match="cannot be stored"):
            futures["bad"].result(30)


def test_work_waits_while_requests_come_and_not_for_ever(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [10.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds
        together._busy = now[0] if now[0] < 10.15 else together._busy  # another request has come

    with Database.open(str(store)) as database:
        together = Together(database)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
        together.wait_until_quiet(1.0)
        assert not slept
        together._busy = now[0]
        together.wait_until_quiet(1.0)
        assert now[0] == pytest.approx(10.16)
        together._busy, now[0] = 10.0, 10.0
        together.wait_until_quiet(0.1)
        assert now[0] == pytest.approx(10.1)


def test_a_rehearsal_of_requests_leaves_none(store: Path) -> None:
    with Database.open(str(store)) as database:
        requests.rehearse(database)
        assert requests.adopt(database) == []
        assert requests.known(database, "", "") is None
        [(_, is_new)] = requests.add(database, request("first"))
        assert is_new
