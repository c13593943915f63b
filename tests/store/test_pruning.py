"""What is dropped, what stays, and that looking drops nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from samples import Filled, candidate, problem
from sqlalchemy import func, select

from kgen.candidate import Rejection
from kgen.errors import NotFoundError
from kgen.protocol import Accuracy, Status
from kgen.store import Database, holder, models, queries, requests
from kgen.store.pruning import Pruned, prune
from kgen.store.requests import StoredRequest
from kgen.store.selection import EVERY, Selection


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that swept are gone."""
    monkeypatch.setattr(holder, "is_alive", lambda who: False)


def counts(database: Database) -> dict[str, int]:
    with database.connections.read() as connection:
        tables = models.Base.metadata.sorted_tables
        return {table.name: connection.execute(select(func.count()).select_from(table)).scalar_one() for table in tables}


def nothing_left(found: dict[str, int]) -> bool:
    return not any(found.values())


@pytest.fixture
def full(filled: Filled) -> Filled:
    """A sweep with something in every table."""
    filled.judge(candidate("right"), speedup=1.5)
    filled.judge(candidate("wrong"), Status.WRONG_VALUES)
    filled.database.add_rejections(filled.sweep, [Rejection("a plan", {}, "threads", "too many")])
    return filled


def test_request_without_an_answer_stays(full: Filled) -> None:
    ids = ("done", "waits", "other")
    every = [StoredRequest("", id, "0", 0, {"problem": {"name": id}}) for id in ids]
    requests.add(full.database, every)
    requests.finish(full.database, [("", "done"), ("", "other")], {"status": "ok"})
    assert prune(full.database, name="done", among=EVERY, really=True).rows["request"] == 1
    assert requests.stored(full.database, every).keys() == {"waits", "other"}
    prune(full.database, among=EVERY, really=True)
    assert requests.stored(full.database, every).keys() == {"waits"}


def test_dropping_all_leaves_nothing(full: Filled) -> None:
    before = counts(full.database)
    dropped = prune(full.database, among=EVERY, really=True)
    assert (dropped.rows, nothing_left(counts(full.database))) == (before, True)


@pytest.mark.parametrize("failed", [False, True])
def test_looking_tells_what_dropping_drops_and_drops_nothing(full: Filled, failed: bool) -> None:
    before = counts(full.database)
    looked = prune(full.database, among=EVERY, failed=failed)
    assert counts(full.database) == before
    assert prune(full.database, among=EVERY, failed=failed, really=True) == looked


def test_sweep_that_runs_is_not_dropped(full: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "is_alive", lambda who: True)
    assert prune(full.database, among=EVERY).nothing


def test_only_what_is_selected_is_dropped(full: Filled) -> None:
    other = Filled(full.database, problem=problem("another", source="another source"))
    other.judge(candidate("of the other"))
    prune(full.database, name="another", among=EVERY, really=True)
    assert [row.id for row in queries.sweeps(full.database)] == [full.sweep]
    with pytest.raises(NotFoundError):
        queries.candidate(full.database, candidate("of the other").id)


def test_sweep_with_the_best_of_its_problem_is_kept_unless_asked(filled: Filled) -> None:
    filled.finish(candidate("fast"), 1.8, 1.9, 2.0)
    best = filled.sweep
    filled.sweep = filled.start()
    filled.finish(candidate("slow"), 1.1, 1.2, 1.3)
    looked = prune(filled.database, among=EVERY)
    assert ([row.id for row in looked.sweeps], [row.id for row in looked.kept]) == ([filled.sweep], [best])
    assert len(prune(filled.database, among=EVERY, even_best=True).sweeps) == 2


@pytest.fixture
def taken_over(full: Filled) -> Iterator[tuple[Filled, str]]:
    """A second sweep that took the right candidate's evaluation over."""
    known = full.database.known(candidate("right").id, full.environment.id, Accuracy.FP32)
    assert known
    second = full.start()
    full.database.add_evaluation(second, candidate("right"), known, environment_id=full.environment.id)
    yield full, second


def test_evaluation_that_another_sweep_took_over_stays_with_its_samples(taken_over: tuple[Filled, str]) -> None:
    full, second = taken_over
    prune(full.database, among=Selection(before=queries.sweep(full.database, second).row.started_at), really=True)
    [judged] = full.database.evaluated(second).values()
    assert judged.timing and judged.timing.blocks
    assert queries.source(full.database, candidate("right").id) == "right"
    with full.database.connections.read() as connection:
        assert connection.execute(select(models.Timing.sweep_id)).scalars().all() == [second]


def test_failed_candidates_go_and_right_ones_stay(full: Filled) -> None:
    dropped: Pruned = prune(full.database, among=EVERY, failed=True, really=True)
    assert (dropped.rows["trial"], dropped.candidates) == (1, (candidate("wrong").id,))
    assert list(full.database.evaluated(full.sweep)) == [candidate("right").id]
    assert full.database.known(candidate("wrong").id, full.environment.id, Accuracy.FP32) is None


def test_files_of_what_is_dropped_are_named(full: Filled) -> None:
    dropped = prune(full.database, among=EVERY)
    assert set(dropped.candidates) == {candidate("right").id, candidate("wrong").id}
    assert set(dropped.logs) == {"logs/1.log"}
