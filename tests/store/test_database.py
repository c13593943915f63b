"""Writes: each row is stored once, and read back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from samples import Filled, candidate, environment, evaluation, make_final, problem, timing
from sqlalchemy import select

from kgen.candidate import Candidate, Rejection, Trust
from kgen.errors import DatabaseBusyError, NotFoundError
from kgen.protocol import Accuracy, Depth, Evaluation, Health, Status
from kgen.store import Database, holder, models, queries

FP32 = Accuracy.FP32


def as_given(stored: Evaluation) -> Evaluation:
    """A stored evaluation without its row's id, to compare it with the one given."""
    return Evaluation(**{name: getattr(stored, name) for name in Evaluation.__dataclass_fields__})


def count(filled: Filled, table: str) -> int:
    with filled.database.connections.read() as connection:
        return connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()


def take_over(filled: Filled, of: str = "x = 1", **changes: object) -> str:
    """Give the known evaluation of a candidate, changed or not, to a second sweep; returns that sweep."""
    known = filled.database.known(candidate(of).id, filled.environment.id, FP32)
    assert known
    second = filled.start()
    given = replace(known, **changes)
    filled.database.add_evaluation(second, candidate(of), given, environment_id=filled.environment.id)
    return second


def test_evaluation_comes_back_as_it_was_given(filled: Filled) -> None:
    filled.judge(candidate())
    judged = filled.database.evaluated(filled.sweep)
    assert {name: as_given(item) for name, item in judged.items()} == {candidate().id: evaluation(candidate())}


def test_conditions_of_a_timing_come_back_in_their_order(filled: Filled) -> None:
    given = evaluation(candidate())
    under = (("sm_clock_mhz", 1980.0), ("cache", "cold"))
    given = replace(given, timing=replace(timing(candidate().id), conditions=under))
    filled.database.add_evaluation(filled.sweep, candidate(), given, environment_id=filled.environment.id)
    found = filled.database.evaluated(filled.sweep)[candidate().id].timing
    assert found and found.conditions == under


def test_screenings_follow_a_faster_baseline_and_finals_do_not(filled: Filled) -> None:
    filled.judge(candidate("screened"), speedup=2.0)
    filled.finish(candidate("final"), 1.4, 1.5, 1.6)
    filled.database.scale_speedups(filled.sweep, 0.5)
    leaders = queries.sweep(filled.database, filled.sweep).leaders
    assert {trial.candidate: trial.speedup for trial in leaders} == {candidate("final").id: 1.5, candidate("screened").id: 1.0}


@pytest.mark.parametrize(("cache", "is_known"), [("cold", True), ("warm", False)])
def test_what_was_timed_with_a_warm_cache_is_not_taken_over(filled: Filled, cache: str, is_known: bool) -> None:
    given = evaluation(candidate())
    given = replace(given, timing=replace(timing(candidate().id), conditions=(("cache", cache),)))
    filled.database.add_evaluation(filled.sweep, candidate(), given, environment_id=filled.environment.id)
    assert (filled.database.known(candidate().id, filled.environment.id, FP32) is not None) == is_known


def described(filled: Filled, *seen_as: Candidate) -> tuple[str, str, int]:
    """How the database describes a text after it came as each of these candidates."""
    for item in seen_as:
        filled.judge(item)
    found = queries.candidate(filled.database, item.id)
    return found.origin, found.plan, found.kernels


OUTSIDE = Candidate(candidate().source, "outside", {}, "cpu", origin=Trust.FOREIGN)


def test_file_from_outside_that_a_sweep_renders_later_is_described_by_the_sweep(filled: Filled) -> None:
    assert described(filled, OUTSIDE, candidate()) == ("sweep", candidate().plan, 1)


def test_rendered_candidate_that_comes_as_a_file_stays_as_described(filled: Filled) -> None:
    assert described(filled, candidate(), OUTSIDE) == ("sweep", candidate().plan, 1)


def test_figure_that_is_no_number_comes_back(filled: Filled) -> None:
    given = evaluation(candidate())
    error = replace(given.errors[0], rms=float("nan"))
    given = replace(given, errors=(error,))
    filled.database.add_evaluation(filled.sweep, candidate(), given, environment_id=filled.environment.id)
    found = filled.database.evaluated(filled.sweep)[candidate().id].errors[0]
    assert found.rms != found.rms


def test_source_comes_back_byte_for_byte(filled: Filled) -> None:
    text = "# \u03c0\r\n\tx = 1\n\n"
    filled.judge(candidate(text))
    assert queries.source(filled.database, candidate(text).id) == text


def test_problem_comes_back_as_it_was_given(database: Database) -> None:
    given = replace(problem(asked_mode="train"), overrides=(("batch_size", 8),))
    database.add_problem(given)
    assert queries.problem(database, given.id) == given


def test_problem_learns_its_health_later(database: Database) -> None:
    database.add_problem(problem())
    database.add_problem(problem(), Health(("zeros",)))
    assert [row.passed_by for row in queries.problems(database)] == [("zeros",)]


def test_mode_asked_for_is_no_default_mode(database: Database) -> None:
    database.add_problem(problem(asked_mode="train"))
    assert [row.default_mode for row in queries.problems(database)] == [False]


def test_mode_not_asked_for_makes_a_known_problem_the_default(database: Database) -> None:
    database.add_problem(problem(asked_mode="train"))
    database.add_problem(problem())
    assert [row.default_mode for row in queries.problems(database)] == [True]


def test_known_finds_an_evaluation_of_another_sweep(filled: Filled) -> None:
    filled.judge(candidate())
    known = filled.database.known(candidate().id, filled.environment.id, FP32)
    assert known and as_given(known) == evaluation(candidate())


def test_known_is_kept_apart_by_environment(filled: Filled) -> None:
    filled.judge(candidate())
    assert filled.database.known(candidate().id, environment("another cpu").id, FP32) is None


def test_known_is_kept_apart_by_accuracy(filled: Filled) -> None:
    filled.judge(candidate())
    assert filled.database.known(candidate().id, filled.environment.id, Accuracy.KERNELBENCH) is None


def test_known_is_kept_apart_by_problem_when_asked(filled: Filled) -> None:
    filled.judge(candidate())
    assert filled.database.known(candidate().id, filled.environment.id, FP32, problem("another").id) is not None
    other = problem(source="another source")
    assert filled.database.known(candidate().id, filled.environment.id, FP32, other.id) is None


def test_failure_of_the_evaluator_is_never_known(filled: Filled) -> None:
    filled.judge(candidate(), Status.INFRA_ERROR)
    assert filled.database.known(candidate().id, filled.environment.id, FP32) is None


def test_failure_of_the_evaluator_is_not_judged(filled: Filled) -> None:
    filled.judge(candidate(), Status.INFRA_ERROR)
    assert filled.database.evaluated(filled.sweep) == {}


def test_failure_of_the_evaluator_is_replaced_when_tried_again(filled: Filled) -> None:
    filled.judge(candidate(), Status.INFRA_ERROR)
    filled.judge(candidate())
    assert [item.status for item in filled.database.evaluated(filled.sweep).values()] == [Status.OK]
    assert count(filled, "trial") == 1


def test_evaluation_taken_over_is_linked_and_not_doubled(filled: Filled) -> None:
    filled.judge(candidate())
    second = take_over(filled)
    assert list(filled.database.evaluated(second)) == [candidate().id]
    assert (count(filled, "evaluation"), count(filled, "timing"), count(filled, "trial")) == (1, 1, 2)


def test_evaluation_taken_over_is_counted(filled: Filled) -> None:
    filled.judge(candidate())
    assert queries.sweep(filled.database, take_over(filled)).taken_over == 1


def test_evaluation_made_from_a_stored_one_is_a_new_one(filled: Filled) -> None:
    filled.judge(candidate())
    take_over(filled, accuracy=Accuracy.KERNELBENCH)
    assert count(filled, "evaluation") == 2


def test_evaluation_given_to_its_own_sweep_again_changes_nothing(filled: Filled) -> None:
    filled.judge(candidate(), speedup=1.5)
    own = filled.database.evaluated(filled.sweep)[candidate().id]
    filled.database.add_evaluation(filled.sweep, candidate(), own, environment_id=filled.environment.id)
    detail = queries.sweep(filled.database, filled.sweep)
    assert (detail.taken_over, detail.leaders[0].speedup) == (0, 1.5)


def test_failed_write_leaves_nothing_of_itself(filled: Filled) -> None:
    with pytest.raises(Exception, match="(?i)foreign key"):
        filled.database.add_evaluation(filled.sweep, candidate(), evaluation(candidate()), environment_id="an unknown one")
    assert (count(filled, "candidate"), count(filled, "source"), count(filled, "evaluation")) == (0, 0, 0)


def test_writes_together_are_committed_at_the_end_or_not_at_all(filled: Filled) -> None:
    for failure in (None, KeyError("fails later")):
        with suppress(KeyError), filled.database.together():
            filled.judge(candidate(str(failure)))
            filled.judge(candidate(f"{failure} again"))
            assert count(filled, "trial") == (0 if failure is None else 2)
            if failure is not None:
                raise failure
    assert (count(filled, "trial"), count(filled, "candidate")) == (2, 2)


def test_candidates_are_numbered_in_the_order_judged(filled: Filled) -> None:
    texts = ["c", "a", "b"]
    for text in texts:
        filled.judge(candidate(text))
    assert list(filled.database.evaluated(filled.sweep)) == [candidate(text).id for text in texts]


def test_rejection_added_again_is_kept_once(filled: Filled) -> None:
    rejection = Rejection("a plan", {"k0.block": 4096}, "threads", "a block has 1024 threads at most")
    filled.database.add_rejections(filled.sweep, [rejection, replace(rejection, params={"k0.block": 2048})])
    filled.database.add_rejections(filled.sweep, [rejection])
    assert [group.count for group in queries.sweep(filled.database, filled.sweep).rejections] == [2]


def test_timing_keeps_raw_samples_and_the_median_of_bursts(filled: Filled) -> None:
    given = timing("eager", (1.0, 9.0, 2.0), (4.0,), depth=Depth.FINAL)
    filled.database.add_timings(filled.sweep, filled.environment.id, FP32, [given])
    with filled.database.connections.read() as connection:
        row = connection.execute(select(models.Timing.bursts, models.Timing.median_ms)).one()
    assert tuple(row) == ([[1.0, 9.0, 2.0], [4.0]], 3.0)


def test_result_of_a_candidate_not_judged_is_refused(filled: Filled) -> None:
    with pytest.raises(NotFoundError):
        filled.database.set_result(
            filled.sweep,
            "f" * 64,
            median_ms=1.0,
            speedup=1.0,
            speedup_low=1.0,
            speedup_high=1.0,
            baselines={},
            baseline="eager",
            error_ratio=None,
            tie=False,
        )


def unfinished(filled: Filled, **arguments: int) -> str | None:
    return filled.database.unfinished_sweep(filled.problem.id, filled.environment.id, FP32, arguments)


def kill_holder(filled: Filled) -> None:
    """Make the sweep look like one whose process was killed: its number is in use by another one now."""
    with filled.database.connections.write() as connection:
        connection.exec_driver_sql("UPDATE sweep SET holder = holder || '1'")


def test_running_sweep_is_not_taken_for_an_unfinished_one(filled: Filled) -> None:
    assert unfinished(filled) is None


def test_sweep_of_a_killed_process_is_unfinished(filled: Filled) -> None:
    kill_holder(filled)
    assert unfinished(filled) == filled.sweep


def test_interrupted_sweep_is_unfinished(filled: Filled) -> None:
    filled.database.finish_sweep(filled.sweep, "interrupted", 1.0, None)
    assert unfinished(filled) == filled.sweep


def test_interrupted_evaluation_of_a_file_is_no_unfinished_sweep(filled: Filled) -> None:
    filled.database.finish_sweep(filled.sweep, "interrupted", 1.0, None)
    with filled.database.connections.write() as connection:
        connection.exec_driver_sql("UPDATE sweep SET kind = 'eval'")
    assert unfinished(filled) is None


def test_finished_sweep_is_not_unfinished(filled: Filled) -> None:
    filled.database.finish_sweep(filled.sweep, "finished", 1.0, None)
    assert unfinished(filled) is None


def test_unfinished_sweep_with_other_arguments_is_another(filled: Filled) -> None:
    kill_holder(filled)
    assert unfinished(filled, budget=7) is None


def test_reopened_sweep_is_running(filled: Filled) -> None:
    filled.database.finish_sweep(filled.sweep, "interrupted", 1.0, None)
    filled.database.reopen_sweep(filled.sweep)
    assert (queries.sweep(filled.database, filled.sweep).row.state, unfinished(filled)) == ("running", None)


def test_reopened_sweep_has_no_finalists_yet(filled: Filled) -> None:
    filled.finish(candidate(), 1.1, 1.2, 1.3)
    filled.database.finish_sweep(filled.sweep, "interrupted", 1.0, None)
    filled.database.reopen_sweep(filled.sweep)
    [leader] = queries.sweep(filled.database, filled.sweep).leaders
    assert (leader.final, leader.speedup_low) == (False, None)


def test_finalist_of_a_reopened_sweep_has_the_figures_of_its_screening(filled: Filled) -> None:
    screened = [timing("eager", (4.0,)), timing("compile", (2.5,))]
    filled.database.add_timings(filled.sweep, filled.environment.id, FP32, screened)
    filled.judge(candidate(), speedup=2.0, ms=1.25)
    make_final(filled.database, filled.sweep, candidate(), 1.1, 1.2, 1.3)
    filled.database.finish_sweep(filled.sweep, "interrupted", 1.0, None)
    filled.database.reopen_sweep(filled.sweep)
    [leader] = queries.sweep(filled.database, filled.sweep).leaders
    assert (leader.median_ms, leader.speedup) == (1.25, 2.0)


def test_dropped_sweep_leaves_nothing_behind(filled: Filled) -> None:
    filled.database.add_rejections(filled.sweep, [Rejection("a plan", {}, "threads", "1024 at most")])
    filled.database.add_timings(filled.sweep, filled.environment.id, FP32, [timing("eager", (4.0,))])
    filled.database.drop_sweep(filled.sweep)
    assert queries.sweeps(filled.database) == []


def test_seconds_add_up_over_interruptions(filled: Filled) -> None:
    filled.database.finish_sweep(filled.sweep, "interrupted", 1.5, None)
    filled.database.reopen_sweep(filled.sweep)
    filled.database.finish_sweep(filled.sweep, "finished", 2.0, None)
    assert queries.sweep(filled.database, filled.sweep).row.seconds == 3.5


def test_sweep_that_another_process_runs_cannot_be_reopened(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "this_process", lambda: "here:1:2")
    with pytest.raises(DatabaseBusyError):
        filled.database.reopen_sweep(filled.sweep)


def test_sweep_that_is_not_there_cannot_be_reopened(filled: Filled) -> None:
    with pytest.raises(NotFoundError):
        filled.database.reopen_sweep("0" * 16)
