"""The output of a running sweep."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console
from samples import candidate, environment, evaluation

from kgen.candidate import Plan
from kgen.protocol import Status
from kgen.protocol.statistics import Interval
from kgen.tuning import events
from kgen.views import plain, progress
from kgen.views.suite_progress import SuiteLive


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as the one item of a list."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def started(budget: int = 5, found_done: int = 1, seconds: float | None = None) -> events.Started:
    return events.Started(
        "a", "made_up", "train", "cpu", environment(), "fp32", 2, 10, 3, budget, found_done, "kgen.db", seconds
    )


def judged(status: Status = Status.OK, speedup: Interval | None = Interval(1.4, 1.5, 1.6)) -> events.Evaluated:
    return events.Evaluated(1, candidate(), evaluation(candidate(), status), 2.0, speedup)


def test_time_left_is_at_the_rate_since_the_first_candidate_which_waits_for_all_that_is_set_up(
    clock: list[float],
) -> None:
    tally = progress.Tally()
    tally.add(started())
    clock[0] += 30
    tally.add(judged())
    assert tally.seconds_left is None
    clock[0] += 2
    tally.add(judged())
    assert tally.seconds_left == 4.0  # two of five are left, one was found done


def test_time_left_is_no_more_than_the_sweep_was_given(clock: list[float]) -> None:
    tally = progress.Tally()
    tally.add(started(budget=100, seconds=60))
    for _ in range(2):
        clock[0] += 10
        tally.add(judged())
    assert tally.seconds_left == 40.0


def test_line_has_built_right_failed_by_kind_and_the_best_with_its_interval() -> None:
    tally = progress.Tally()
    news = [events.Built("a", True, False, 0.7)] * 3
    for event in (started(), *news, judged(), judged(speedup=Interval(1.9, 2.0, 2.1)), judged(Status.CRASHED, None)):
        tally.add(event)
    found = "starting  built 3  right 2  failed 1 (crashed 1)  best 2.000x [1.900, 2.100], 2 ms"
    assert tally.line.startswith(found)


def test_line_has_at_most_100_columns_and_counts_kernels_of_a_long_plan() -> None:
    plan = Plan.of_mode([("row", ["gelu", "softmax"])] * 90 + [("", ["linear"])])
    long = replace(candidate(), plan=plan.name, plan_data=plan)
    console = Console(file=StringIO(), width=400)
    with progress.Live(console) as live:
        for event in (started(), events.Built("a", True, False, 0.7), replace(judged(), candidate=long)):
            live(event)
        live(replace(judged(), candidate=long))
    assert max(len(line) for line in shown(console).splitlines() if "built" in line) <= 100
    assert "90 kernels, 1 library call" in live.tally.within(120) and "90 kernels" not in live.tally.within(80)


def test_line_names_the_phase() -> None:
    tally = progress.Tally()
    phases = []
    baseline = "compiling the max-autotune baseline"
    for event in (events.Step(baseline), events.Measured((("eager", 1.0),), "cpu"), events.Finals(("a", "b"))):
        tally.add(event)
        phases.append(tally.line.partition("  ")[0])
    assert phases == [baseline, "trying candidates", "timing 2 leaders beside the baselines"]


def test_plain_output_has_one_line_for_each_change() -> None:
    console = Console(file=StringIO(), width=200)
    with progress.Live(console) as live:
        for event in (events.Step("a phase"), events.Step("a phase"), started(), events.Built("a", True, False, 0.7)):
            live(event)
        live(events.Built("b", True, False, 0.7))
        live(judged())
    lines = [line for line in shown(console).splitlines() if "phase" in line]
    assert [line.partition("  best")[0] for line in lines] == [
        "1/5  a phase  built 0  right 0",
        "2/5  a phase  built 2  right 1",
    ]


def test_json_begins_with_the_start_and_the_phase_follows() -> None:
    lines: list[str] = []
    watch = progress.JsonLines(lines.append)
    for event in (events.Step("a phase"), started(), events.Step("another")):
        watch(event)
    found = [(line["event"], line.get("text")) for line in map(json.loads, lines)]
    assert found == [("started", None), ("step", "a phase"), ("step", "another")]


def test_terminal_shows_one_line_that_is_overwritten() -> None:
    console = Console(file=StringIO(), width=200, force_terminal=True, force_interactive=True)
    with progress.Live(console) as live:
        live(events.Step("a phase"))
        live(started())
    assert shown(console).count("\n1/5") == 0  # no plain line
    assert shown(console).endswith("\x1b[2K") or "\x1b[1A" in shown(console)


def shown(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_line_shows_the_cluster_with_its_rate(clock: list[float]) -> None:
    tally = progress.Tally()
    for event in (started(), events.Cluster(2, 16, 15), judged()):
        tally.add(event)
    clock[0] += 3
    tally.add(judged())
    assert "2 nodes, 16 devices (15 busy), 20 candidates/min" in tally.line


def test_event_of_a_problem_beside_others_has_its_number() -> None:
    line = plain.event(events.Beside(3, "made_up", events.Built("a", True, False, 0.7)))
    assert line == {"event": "built", "candidate": "a", "ok": True, "cached": False, "seconds": 0.7, "number_in_suite": 3}


def test_suite_shows_its_cluster_and_whose_notice_it_is() -> None:
    out = StringIO()
    watch = SuiteLive(Console(file=out, width=200))
    with watch:
        for event in (events.Cluster(2, 2, 2), events.Beside(1, "made_up", events.Notice("a baseline is left out"))):
            watch(event)
    assert "made_up: a baseline is left out" in out.getvalue()


def test_line_counts_the_kernels_of_a_network_and_tells_when_their_tuning_ends() -> None:
    tally = progress.Tally()
    tally.add(started())
    tally.add(events.Tuning(3, 26, "schedule[linear, gelu]", 75.0))
    assert tally.line.startswith("tuning kernel 3 of 26  ") and tally.line.endswith("1 min 15 s left")
    tally.add(events.Step("trying candidates of the best kernels"))
    assert "tuning" not in tally.line and tally.seconds_left is None


def test_tuning_is_one_object_of_json() -> None:
    found = plain.event(events.Tuning(3, 26, "schedule[linear]", None))
    assert found == {"event": "tuning", "number": 3, "of": 26, "label": "schedule[linear]", "seconds_left": None}
