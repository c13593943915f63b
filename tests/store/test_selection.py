"""Which sweeps a listing is about."""

from __future__ import annotations

from datetime import timedelta

import pytest
from samples import Filled, candidate, environment, problem

from kgen.cli.listing import SWEEP_STATES
from kgen.protocol import Status
from kgen.store import Database, holder, queries, rows
from kgen.store.selection import STATES, Selection


def found(database: Database, **filters: object) -> list[str]:
    return [row.id for row in queries.sweeps(database, among=Selection(**filters))]  # type: ignore[arg-type]


def test_command_line_knows_the_states() -> None:
    assert SWEEP_STATES == STATES


def test_nothing_asked_is_every_sweep(filled: Filled) -> None:
    second = filled.start()
    assert found(filled.database) == [second, filled.sweep]


@pytest.mark.parametrize(("device", "count"), [("cpu", 1), ("cuda", 1), ("cuda:1", 1), ("cuda:0", 0)])
def test_device_is_a_kind_or_one_of_it(filled: Filled, device: str, count: int) -> None:
    Filled(filled.database, environment=environment("a gpu", "cuda"), device="cuda:1")
    assert len(found(filled.database, device=device)) == count


@pytest.mark.parametrize("state", ["finished", "interrupted", "failed"])
def test_state_is_that_of_the_sweep(filled: Filled, state: str) -> None:
    filled.database.finish_sweep(filled.sweep, state, 1.0, None)
    assert [found(filled.database, status=other) for other in STATES] == [
        [filled.sweep] if other == state else [] for other in STATES
    ]


def test_sweep_whose_process_is_gone_is_interrupted(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (found(filled.database, status="running"), found(filled.database, status="interrupted")) == ([filled.sweep], [])
    monkeypatch.setattr(holder, "is_alive", lambda who: False)
    assert (found(filled.database, status="running"), found(filled.database, status="interrupted")) == ([], [filled.sweep])


def test_status_of_a_candidate_finds_its_sweep(filled: Filled) -> None:
    filled.judge(candidate(), Status.CRASHED)
    Filled(filled.database, problem=problem("another", source="another source"))
    assert found(filled.database, status="crashed") == [filled.sweep]
    assert found(filled.database, status="wrong_values") == []


def test_time_has_a_beginning_that_belongs_to_it_and_an_end_that_does_not(filled: Filled) -> None:
    [row] = queries.sweeps(filled.database)
    begun, later = row.started_at, row.started_at + timedelta(seconds=1)
    assert found(filled.database, since=begun, before=later) == [filled.sweep]
    assert found(filled.database, since=later) == found(filled.database, before=begun) == []


def test_time_in_another_zone_is_the_same_time(filled: Filled) -> None:
    zone = rows.now().astimezone().tzinfo
    [row] = queries.sweeps(filled.database)
    assert found(filled.database, since=row.started_at.astimezone(zone)) == [filled.sweep]


def test_sweeps_without_copies_of_weights_are_those_that_were_asked_so(filled: Filled) -> None:
    more = filled.start(weight_copies=False)
    assert found(filled.database, weight_copies=False) == [more]
    assert found(filled.database) == [more, filled.sweep]
