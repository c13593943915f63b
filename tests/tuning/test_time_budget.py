"""The time that a sweep is given: compiled baselines, the end of the search, and finals share it."""

from __future__ import annotations

import time

import pytest
from judges import CheapBuilder, CheapJudge
from running import PROBLEM

from kgen.candidate import Candidate
from kgen.evaluator.pool import DevicePool, TimeIsUp
from kgen.evaluator.timing.measure import OVERTIME
from kgen.problems.problem import read_problem
from kgen.protocol import BuildReport, Evaluation, Phase
from kgen.tuning import sweep, time_budget
from kgen.tuning.pipeline import Pipeline
from kgen.tuning.time_budget import TimeBudget

#: The phases of a candidate: 1 s to load, 2 s to validate, 3 s to time.
USUAL = ((Phase.BUILD, 9.0), (Phase.LOAD, 1.0), (Phase.VALIDATE, 2.0), (Phase.TIME, 3.0))
PREPARE = (Phase.PREPARE, 4.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock: its last entry is the time."""
    times = [0.0]
    monkeypatch.setattr(time_budget.time, "monotonic", lambda: times[-1])
    return times


def budget(seconds: float | None, at_once: int = 1) -> TimeBudget:
    made = TimeBudget(seconds, 0.0, 12.0, at_once)
    made.judged(USUAL)
    return made


def test_search_ends_when_what_is_on_its_way_the_loads_and_the_finals_fill_the_rest(clock: list[float]) -> None:
    allotted = budget(40.0)  # 10 s of finals, 2 loads before them, and a candidate of 6 s on its way
    clock.append(21.9)
    assert not allotted.is_over(finalists=2)
    clock.append(22.1)
    assert allotted.is_over(finalists=2)


def test_timings_of_candidates_that_are_judged_at_once_take_turns(clock: list[float]) -> None:
    clock.append(10.0)
    assert not budget(40.0, at_once=3).is_over(finalists=2)
    clock.append(16.1)
    assert budget(40.0, at_once=3).is_over(finalists=2)


def test_search_does_not_end_before_one_candidate_is_judged(clock: list[float]) -> None:
    clock.append(100.0)
    assert not TimeBudget(40.0, 0.0, 12.0).is_over(finalists=1)
    assert budget(40.0).is_over(finalists=1)


def test_search_without_a_limit_never_ends_by_the_clock(clock: list[float]) -> None:
    clock.append(1e6)
    assert not budget(None).is_over(finalists=5)
    assert budget(None).finals(5) == 12.0


def test_one_slow_candidate_does_not_end_the_search_early(clock: list[float]) -> None:
    allotted = budget(40.0)
    allotted.judged(USUAL)
    allotted.judged([(Phase.VALIDATE, 60.0)])
    clock.append(20.0)
    assert not allotted.is_over(finalists=2)


def test_candidate_is_begun_unless_only_the_time_of_the_finals_is_left(clock: list[float]) -> None:
    clock.append(29.9)
    assert not budget(40.0).is_late()
    clock.append(30.1)
    assert budget(40.0).is_late()
    assert not budget(None).is_late()


@pytest.mark.parametrize("late", [True, False])
def test_late_pipeline_judges_one_candidate_and_begins_no_other(late: bool) -> None:
    judge = CheapJudge(read_problem(PROBLEM), "cpu")
    with DevicePool([judge]) as devices:
        devices.wait()
        pipeline = Pipeline(CheapBuilder(), devices, 1, is_late=lambda: late)
        for number in range(3):
            pipeline.put(Candidate(f"x = {number}", "plan", {}, "cpu", 1))
        told = list(iter(pipeline.next, None))
        pipeline.close()
    assert len(told) == len(judge.evaluated) == (1 if late else 3)


@pytest.mark.parametrize(("now", "seconds"), [(20.0, 10.0), (32.0, 7.0), (39.0, 2.0), (60.0, 2.0)])
def test_finals_take_what_is_left_within_bounds(clock: list[float], now: float, seconds: float) -> None:
    clock.append(now)
    assert budget(40.0).finals(finalists=1) == seconds


@pytest.mark.parametrize(("now", "finalists"), [(0.0, 5), (20.0, 3), (31.0, 1)])
def test_finals_end_in_time_with_their_overtime_and_what_gets_finalists_ready(
    clock: list[float], now: float, finalists: int
) -> None:
    allotted = budget(40.0)
    allotted.judged([PREPARE])
    clock.append(now)
    assert 5.0 * finalists + OVERTIME * allotted.finals(finalists) <= allotted.finals_end(finalists) == pytest.approx(42.0 - now)


def test_finals_whose_time_is_up_are_not_cut_before_the_shortest_ones_end(clock: list[float]) -> None:
    allotted = budget(40.0)
    allotted.judged([PREPARE])
    clock.append(60.0)
    assert allotted.finals_end(2) == 2 * 5.0 + OVERTIME * allotted.finals(2) == 12.5
    assert budget(None).finals_end(2) == float("inf")


def test_fewer_finalists_get_ready_where_little_time_is_left(clock: list[float]) -> None:
    allotted = budget(40.0)
    allotted.judged([PREPARE])
    found = []
    for now in (20.0, 27.0, 33.0, 60.0):
        clock.append(now)
        found.append(allotted.finalists([1.0] * 3, []))
    assert found == [3, 2, 1, 1]


def test_so_many_finalists_are_timed_as_the_time_allows(clock: list[float]) -> None:
    slow = [50.0, 51.0, 52.0]
    assert budget(40.0).finalists(slow, [100.0]) == 2  # 40 calls of each in 10 s: 250 ms for all of them
    assert budget(40.0).finalists(slow, [900.0]) == 1
    assert budget(None).finalists(slow, [900.0]) == 3


def test_so_many_finalists_are_timed_as_finals_have_time_for_screenings(clock: list[float]) -> None:
    allotted = TimeBudget(None, 0.0, 12.0)
    allotted.judged([(Phase.TIME, 3.0)])
    assert allotted.finalists([1.0] * 5, [1.0]) == 3 and allotted.finalists([1.0] * 5, [1.0] * 9) == 1


def test_each_part_of_a_sweep_has_its_end() -> None:
    request = sweep.SweepRequest(read_problem(PROBLEM), device="cpu", seconds=40.0)
    [evaluator] = sweep.open_devices(request, print, 100.0).evaluators
    found = evaluator.limits
    assert (found.compile_until, found.judge_until, found.first_until, found.reference_seconds) == (116.0, 132.0, 140.0, 8.0)
    assert TimeBudget(40.0, 100.0, 12.0).finals_until == pytest.approx(142.0)
    assert TimeBudget(None, 100.0, 12.0).finals_until == float("inf")


def test_candidate_that_does_not_end_is_not_waited_for() -> None:
    judge = CheapJudge(read_problem(PROBLEM), "cpu", seconds=lambda candidate: 60.0)
    with DevicePool([judge]) as devices:
        devices.wait()
        pipeline = Pipeline(CheapBuilder(), devices, 1)
        pipeline.put(Candidate("x = 1", "plan", {}, "cpu", 1))
        assert pipeline.next(time.monotonic() + 0.2) is None and pipeline.unjudged == 1
        pipeline.close()


def test_candidate_that_is_cut_gets_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = CheapJudge(read_problem(PROBLEM), "cpu")

    def cut(candidate: Candidate, build: BuildReport) -> Evaluation:
        raise TimeIsUp(candidate.id)

    monkeypatch.setattr(judge, "evaluate", cut)
    with DevicePool([judge]) as devices:
        devices.wait()
        pipeline = Pipeline(CheapBuilder(), devices, 1)
        pipeline.put(Candidate("x = 1", "plan", {}, "cpu", 1))
        assert pipeline.next() is None and pipeline.unjudged == 1
        pipeline.close()


def test_evaluator_leaves_out_only_what_is_compiled() -> None:
    from kgen.evaluator.correctness.validate import Failure

    request = sweep.SweepRequest(read_problem(PROBLEM), device="cpu", seconds=1.0)
    [evaluator] = sweep.open_devices(request, print, -100.0).evaluators
    assert evaluator.compared.compile_seconds("eager") > 0
    with pytest.raises(Failure, match="the time for compiling baselines is over"):
        evaluator.compared.compile_seconds("compile")


def test_tasks_are_tuned_only_where_candidates_have_time_behind_them(clock: list[float]) -> None:
    allotted = budget(100.0)  # candidates are cut at 80 s, take 9 s to build beside each other, and 6 s behind that
    clock.append(20.0)
    assert allotted.tasks_until(1) == pytest.approx(20.0 + 0.6 * 60.0)
    assert allotted.tasks_until(5) == pytest.approx(80.0 - 9.0 - 5 * 6.0)
    assert allotted.tasks_until(7) is None and budget(None).tasks_until(7) > 100.0


def test_candidate_that_would_be_cut_is_not_begun(clock: list[float]) -> None:
    allotted = budget(100.0)  # it takes 6 s to load, to validate and to time
    clock.append(73.9)
    assert not allotted.is_cut
    clock.append(74.1)
    assert allotted.is_cut and not budget(None).is_cut
