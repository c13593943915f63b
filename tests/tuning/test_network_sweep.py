"""A network from end to end: its kernels are tuned as tasks, found again, and shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from networks import NETWORK, RELATIVE
from running import Ended, Home

from kgen.devices.kinds import KINDS

_SWEEP = ("--mode", "eval", "--device", "cpu", "--baselines", "eager", "--budget", "4", "--json")


@pytest.fixture(scope="module")
def brief_finals() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, "cpu", replace(KINDS["cpu"], final_seconds=1.0))
        yield


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, one_server: None, brief_finals: None) -> tuple[Home, Ended]:
    folder = tmp_path_factory.mktemp("network")
    home = Home(folder)
    for name, source in (("network", NETWORK), ("relative", RELATIVE)):
        (folder / f"{name}.py").write_text(source)
    return home, home.typed("sweep", str(folder / "network.py"), *_SWEEP)


def tuned(ended: Ended) -> list[str]:
    return [event["label"] for event in ended.events if event["event"] == "tuning"]


def test_kernels_are_tuned_behind_the_first_candidates_and_before_the_last(swept: tuple[Home, Ended]) -> None:
    home, ended = swept
    kinds = [event["event"] for event in ended.events]
    evaluated = [number for number, kind in enumerate(kinds) if kind == "evaluated"]
    assert len(evaluated) == 4 and evaluated[0] < kinds.index("tuning") < evaluated[-1]
    assert home.ask("SELECT count(*) FROM task_result WHERE status = 'ok'")[0][0] > 8


def test_assembled_candidate_shows_its_kernels_with_times_and_shares(swept: tuple[Home, Ended]) -> None:
    home, ended = swept
    _, first, *_, last = [event for event in ended.events if event["event"] == "evaluated"]
    found = home.typed("show", last["candidate"], "--json").json["tasks"]
    assert [step["name"] for step in found if step["variant"] and step["variant"]["schedule"]] == [
        step["kernel"] for step in last["steps"] if step["kernel"]
    ]
    assert sum(step["share"] or 0.0 for step in found) == pytest.approx(1.0)
    assert home.typed("show", first["candidate"], "--json").json["tasks"]  # it was judged before the kernels were tuned
    assert "kernel tasks" in home.typed("show", last["candidate"]).out


def test_tasks_are_listed_those_that_take_longest_first(swept: tuple[Home, Ended]) -> None:
    home, _ = swept
    rows = home.typed("history", "--tasks", "--json", "--limit", "50").json
    assert rows and [row["ms"] for row in rows] == sorted((row["ms"] for row in rows), reverse=True)
    assert home.typed("history", "another", "--tasks", "--json").json == []


@pytest.mark.exhaustive  # beside a bench that measures nothing, in tasks/test_tuner.py
def test_relative_measures_only_what_is_new(swept: tuple[Home, Ended]) -> None:
    home, first = swept
    second = home.typed("sweep", str(home.folder / "relative.py"), *_SWEEP)
    assert len(tuned(second)) < len(tuned(first)) / 2
