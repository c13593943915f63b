"""Scores: the verdict on each problem, and KernelBench's figures over all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import Filled, candidate, environment, problem, timing

from kgen.problems.problem_set import read_set
from kgen.protocol import Accuracy, Depth, Status
from kgen.protocol.statistics import Interval
from kgen.store import Database, attempts, exchange, pruning, scores
from kgen.store.attempts import Attempt
from kgen.store.scores import Score, Verdict, summary
from kgen.store.selection import Selection

OWN, CONTROL = candidate("own"), candidate("control", control=True, kernels=0)


@pytest.fixture
def url(tmp_path: Path, newest: Path) -> str:
    """SQLite alone: what scores ask is asked of both kinds elsewhere."""
    made = tmp_path / "kgen.db"
    made.write_bytes(newest.read_bytes())
    return str(made)


def only(database: Database, **asked: Any) -> Score:
    [score] = scores.of_database(database, **asked)
    return score


def end(filled: Filled, state: str = "finished") -> None:
    filled.database.finish_sweep(filled.sweep, state, 1.0, None)


def attempt(outcome: str = "refused", of: Any = None, **changes: Any) -> Attempt:
    of = of or problem()
    made = Attempt(of.name, of.path, of.source_hash, None, {}, "fp32", "cpu", outcome, "the reason", 1.0, {"seed": 0})
    return replace(made, **changes)


# The verdict on one problem --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [((1.01, 1.5, 1.6), "faster"), ((0.98, 1.01, 1.05), "same"), ((0.7, 0.8, 0.99), "slower"), ((1, 1, 1), "same")],
)
def test_verdict_follows_from_the_interval_of_the_best_finalist(
    filled: Filled, interval: tuple[float, float, float], verdict: str
) -> None:
    filled.finish(OWN, *interval)
    end(filled)
    score = only(filled.database)
    assert (score.verdict, score.speedup) == (verdict, Interval(*interval))
    assert (score.plan, score.accuracy, score.reason) == (OWN.plan, "fp32", None)


def test_control_alone_is_right_without_a_speedup_where_no_kernel_was(filled: Filled) -> None:
    filled.judge(CONTROL, speedup=1.02, ms=2.5)
    filled.judge(OWN, Status.WRONG_VALUES, reason="row 3 is off")
    end(filled)
    score = only(filled.database)
    assert (score.verdict, score.speedup, score.over_eager, score.ms) == ("none right", None, None, 2.5)
    assert score.right and "1 of 1 ended as wrong_values" in (score.reason or "")


def test_control_beside_kernels_that_were_not_judged_or_not_timed_to_the_end_is_not_judged_in_time(filled: Filled) -> None:
    filled.judge(CONTROL, speedup=1.0)
    end(filled)
    score = only(filled.database)
    assert (score.verdict, score.right) == ("not judged in time", True)
    assert "give it a longer --time" in (score.reason or "")
    filled.judge(OWN, speedup=1.2)
    score = only(filled.database)
    assert (score.verdict, score.speedup) == ("not judged in time", None)
    assert "the time was up before the finals" in (score.reason or "")


def test_control_of_a_problem_without_kernels_has_nothing_beside_it_to_try(database: Database) -> None:
    filled = Filled(database, combinations=1)
    filled.judge(CONTROL, speedup=1.0, ms=2.5)
    end(filled)
    score = only(database)
    assert (score.verdict, score.right, score.ms) == ("nothing to try", True, 2.5)
    assert "`kgen plan` says why" in (score.reason or "")


@pytest.mark.parametrize(("ms", "verdict"), [(5.0, "slower"), (2.55, "nothing to try")])
def test_control_that_is_slower_than_eager_makes_its_problem_slower(database: Database, ms: float, verdict: str) -> None:
    filled = Filled(database, combinations=1)
    database.add_timings(filled.sweep, filled.environment.id, Accuracy.FP32, [timing("eager", (2.5,))])
    filled.judge(CONTROL, speedup=2.5 / ms, ms=ms)
    end(filled)
    score = only(database)
    assert (score.verdict, score.ms) == (verdict, ms)
    assert score.speedup == (Interval(0.5, 0.5, 0.5) if verdict == "slower" else None)
    assert ("takes 5 ms where eager takes 2.5" in (score.reason or "")) == (verdict == "slower")


def test_control_that_was_faster_in_screening_is_no_speedup_of_a_slower_kernel(filled: Filled) -> None:
    filled.judge(CONTROL, speedup=1.3)
    filled.finish(OWN, 0.7, 0.8, 0.9)
    end(filled)
    assert only(filled.database).verdict == "slower"


def test_problem_of_which_no_candidate_was_right_says_why_most_failed(filled: Filled) -> None:
    filled.judge(candidate("a"), Status.WRONG_VALUES, reason="row 3 is off")
    filled.judge(candidate("b"), Status.WRONG_VALUES, reason="row 4 is off")
    filled.judge(candidate("c"), Status.CRASHED, reason="signal 11")
    end(filled)
    score = only(filled.database)
    assert score.verdict == "none right"
    assert ": 2 of 3 ended as wrong_values, such as " in (score.reason or "") and "row 3" in (score.reason or "")


def test_sweep_that_judged_nothing_in_its_time_is_none(filled: Filled) -> None:
    end(filled)
    score = only(filled.database)
    assert (score.verdict, score.right) == ("not judged in time", False) and "a longer --time" in (score.reason or "")


@pytest.mark.parametrize("state", ["interrupted", "running"])
def test_sweep_that_has_not_ended_proves_nothing(filled: Filled, state: str) -> None:
    filled.judge(OWN, speedup=1.5)
    filled.judge(CONTROL, speedup=1.0)
    if state != "running":
        end(filled, state)
    score = only(filled.database)
    assert (score.verdict, score.speedup) == ("not swept", None)
    assert ("interrupted" if state == "interrupted" else "runs now") in (score.reason or "")


@pytest.mark.parametrize("outcome", ["refused", "failed"])
def test_attempt_is_shown_where_nothing_was_swept(database: Database, outcome: str) -> None:
    attempts.add(database, attempt(outcome))
    score = only(database)
    assert (score.problem, score.verdict, score.reason) == ("made_up", outcome, "the reason")


def test_result_is_shown_before_an_attempt_that_failed_later(filled: Filled) -> None:
    filled.finish(OWN, 1.2, 1.3, 1.4)
    end(filled)
    attempts.add(filled.database, attempt("failed"))
    assert only(filled.database).verdict == "faster"


def test_attempt_later_than_a_sweep_without_success_is_shown(filled: Filled) -> None:
    filled.judge(OWN, Status.CRASHED)
    end(filled)
    attempts.add(filled.database, attempt("failed"))
    assert only(filled.database).verdict == "failed"


def test_sweep_later_than_an_attempt_is_shown(database: Database) -> None:
    attempts.add(database, attempt())
    filled = Filled(database)
    filled.judge(OWN, Status.CRASHED)
    end(filled)
    assert only(database).verdict == "none right"


def test_interval_of_the_speedup_over_eager_comes_from_the_samples_of_the_finals(filled: Filled) -> None:
    filled.finish(OWN, 1.2, 1.5, 1.6)  # at 2 ms beside eager at 4 ms
    finals = [timing("eager", (4.0,), (5.0,), (4.4,), depth=Depth.FINAL), timing(OWN.id, (2.0,), (2.0,), (2.2,), depth=Depth.FINAL)]
    filled.database.add_timings(filled.sweep, filled.environment.id, filled.accuracy, finals)
    end(filled)
    found = only(filled.database).over_eager
    assert found is not None and (found.low, found.high) == (2.0, 2.5)


def test_speedup_over_eager_is_that_of_the_medians_where_samples_are_gone(filled: Filled) -> None:
    filled.finish(OWN, 1.2, 1.5, 1.6)  # at 2 ms beside eager at 4 ms
    end(filled)
    found = only(filled.database).over_eager
    assert found is not None and found.mid == 2.0


# Which problems, and which results -------------------------------------------------------------------------------


def test_file_counts_with_its_present_text(filled: Filled, tmp_path: Path) -> None:
    filled.finish(OWN, 1.2, 1.3, 1.4)
    end(filled)
    file = tmp_path / "made_up.py"
    file.write_text(filled.problem.source)
    filled.database.add_problem(problem())  # in the default mode
    members = read_set([str(file)])
    [score] = scores.of_files(filled.database, members)
    assert score.verdict == "faster"
    file.write_text(filled.problem.source + "# changed\n")
    [score] = scores.of_files(filled.database, read_set([str(file)]))
    assert (score.verdict, score.reason) == ("not swept", None)


def test_results_of_one_class_of_accuracy_are_shown(filled: Filled) -> None:
    filled.finish(OWN, 1.2, 1.3, 1.4)
    end(filled)
    assert scores.of_database(filled.database, accuracy=Accuracy.TF32) == ()
    other = Filled(filled.database, accuracy=Accuracy.TF32)
    other.finish(candidate("tf32"), 0.7, 0.8, 0.9)
    end(other)
    assert only(filled.database, accuracy=Accuracy.TF32).verdict == "slower"
    assert only(filled.database).accuracy == "fp32"


def test_results_of_one_device_are_shown(filled: Filled) -> None:
    filled.finish(OWN, 1.2, 1.3, 1.4)
    end(filled)
    gpu = Filled(filled.database, environment=environment("a gpu", "cuda"), device="cuda:0")
    gpu.finish(candidate("gpu"), 0.7, 0.8, 0.9)
    end(gpu)
    assert only(filled.database, among=Selection(device="cpu")).verdict == "faster"
    assert only(filled.database, among=Selection(device="cuda")).verdict == "slower"


# All together ----------------------------------------------------------------------------------------------------


def score(verdict: str, speedup: float | None = None, over_eager: float | None = None) -> Score:
    def exact(value: float | None) -> Interval | None:
        return Interval(value, value, value) if value else None

    return Score("p", Verdict(verdict), speedup=exact(speedup), over_eager=exact(over_eager))


def test_fast_p_is_the_share_of_all_problems_that_are_right_and_more_than_p_times_as_fast_as_eager() -> None:
    rows = [
        score("faster", 1.6, 2.5),
        score("same", 1.0, 1.5),
        score("same"),
        score("slower", 0.5, 0.8),
        score("none right"),
        score("refused"),
        score("failed"),
        score("not swept"),
    ]
    total = summary(rows)
    assert (total.problems, total.right, total.correct) == (8, 4, 0.5)
    assert total.fast == {0.0: 4 / 8, 1.0: 2 / 8, 1.5: 1 / 8, 2.0: 1 / 8}


def test_geometric_means_are_over_the_right_problems_and_count_one_without_a_kernel_of_its_own() -> None:
    total = summary([score("faster", 4.0, 8.0), score("same"), score("slower", 0.5, 1.0), score("refused")])
    assert total.geomean == pytest.approx((4.0 * 1.0 * 0.5) ** (1 / 3))
    assert total.geomean_over_eager == pytest.approx(2.0)


def test_nothing_right_has_no_mean() -> None:
    total = summary([score("none right")])
    assert (total.geomean, total.geomean_over_eager, total.fast[1.0]) == (None, None, 0.0)


def test_no_problem_has_no_share() -> None:
    assert summary([]).correct == 0.0 and not any(math.isnan(value) for value in summary([]).fast.values())


# Attempts travel, and are dropped --------------------------------------------------------------------------------


def test_attempts_go_with_a_history(database: Database, tmp_path: Path) -> None:
    attempts.add(database, attempt())
    file = tmp_path / "history.jsonl"
    file.write_text("\n".join(exchange.export(database, among=Selection())) + "\n")
    with Database.open(str(tmp_path / "other.db")) as other:
        assert exchange.bring_in(other, [file]).written["attempt"] == 1
        assert only(other).reason == "the reason"


def test_attempts_are_dropped_by_the_name_of_their_problem(database: Database) -> None:
    attempts.add(database, attempt())
    attempts.add(database, attempt(of=problem("another", source="x")))
    dropped = pruning.prune(database, name="another", among=Selection(), failed=True, really=True)
    assert dropped.rows["attempt"] == 1
    assert only(database).problem == "made_up"

