"""What the read side answers: who is best, what ties, what failed; and that no question reads a whole large table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from samples import Filled, candidate, environment, evaluation, problem, timing
from sqlalchemy import event

from kgen.candidate import Candidate, Rejection
from kgen.errors import NotFoundError
from kgen.protocol import Accuracy, Depth, Status
from kgen.store import Database, comparison, queries, ranking
from kgen.store.results import BestRow
from kgen.store.selection import Selection

#: Tables that grow with every candidate.
LARGE = ("candidate", "source", "rejection", "evaluation", "trial", "timing")


def the_best(filled: Filled, **filters: Any) -> BestRow:
    [row] = ranking.best(filled.database, problem_ids=[filled.problem.id], **filters)
    return row


def best_id(filled: Filled, **filters: Any) -> str | None:
    trial = the_best(filled, **filters).trial
    return trial and trial.candidate


def test_faster_finalist_is_best(filled: Filled) -> None:
    filled.finish(candidate("slow"), 1.1, 1.2, 1.3)
    filled.finish(candidate("fast"), 1.4, 1.5, 1.6)
    assert best_id(filled) == candidate("fast").id


def test_finalist_goes_before_a_candidate_that_was_only_screened(filled: Filled) -> None:
    filled.finish(candidate("final"), 1.1, 1.2, 1.3)
    filled.judge(candidate("screened"), speedup=9.0)
    assert best_id(filled) == candidate("final").id


def test_control_is_never_best(filled: Filled) -> None:
    filled.finish(candidate("control", control=True), 1.9, 2.0, 2.1)
    filled.finish(candidate("own kernel"), 1.1, 1.2, 1.3)
    assert best_id(filled) == candidate("own kernel").id


def test_controls_alone_leave_no_best(filled: Filled) -> None:
    filled.finish(candidate("control", control=True), 1.9, 2.0, 2.1)
    row = the_best(filled)
    assert (row.trial, row.beats_baseline) == (None, False)


def test_tie_is_won_by_fewer_kernels(filled: Filled) -> None:
    filled.finish(candidate("two", kernels=2), 1.4, 1.6, 1.8, tie=True)
    filled.finish(candidate("one", kernels=1), 1.4, 1.5, 1.8, tie=True)
    assert (best_id(filled), the_best(filled).ties) == (candidate("one").id, 1)


def test_tie_is_won_by_fewer_lines_among_as_many_kernels(filled: Filled) -> None:
    filled.finish(candidate("x = 1\ny = 2"), 1.4, 1.6, 1.8, tie=True)
    filled.finish(candidate("x = 1"), 1.4, 1.5, 1.8, tie=True)
    assert best_id(filled) == candidate("x = 1").id


def test_tie_is_won_by_the_smaller_id_in_the_end(filled: Filled) -> None:
    filled.finish(candidate("a"), 1.4, 1.6, 1.8, tie=True)
    filled.finish(candidate("b"), 1.4, 1.5, 1.8, tie=True)
    assert best_id(filled) == min(candidate("a").id, candidate("b").id)


def test_best_of_a_sweep_is_the_one_that_it_named(filled: Filled) -> None:
    """It compared them head to head, which may differ from the order of their speedups over a third."""
    filled.finish(candidate("one", kernels=1), 1.4, 1.6, 1.8)
    filled.finish(candidate("two", kernels=2), 1.4, 1.5, 1.8)
    filled.database.finish_sweep(filled.sweep, "finished", 1.0, candidate("two").id)
    assert (best_id(filled), the_best(filled).ties) == (candidate("two").id, 0)


def test_choice_of_a_sweep_comes_before_its_simpler_ties(filled: Filled) -> None:
    filled.finish(candidate("two", kernels=2), 1.4, 1.6, 1.8, tie=True)
    filled.finish(candidate("one", kernels=1), 1.4, 1.5, 1.8, tie=True)
    filled.database.finish_sweep(filled.sweep, "finished", 1.0, candidate("two").id)
    assert (best_id(filled), the_best(filled).ties) == (candidate("two").id, 1)


def test_finalists_of_two_sweeps_tie_where_their_intervals_overlap(filled: Filled) -> None:
    filled.finish(candidate("two", kernels=2), 1.4, 1.6, 1.8)
    filled.sweep = filled.start()
    filled.finish(candidate("one", kernels=1), 1.3, 1.35, 1.5)
    assert best_id(filled) == candidate("one").id


def test_finalist_of_two_sweeps_counts_as_the_later_has_it(filled: Filled) -> None:
    filled.finish(candidate("once lucky"), 1.9, 2.0, 2.1)
    filled.sweep = filled.start()
    filled.finish(candidate("once lucky"), 1.1, 1.2, 1.3)
    assert [trial and trial.speedup for trial in [the_best(filled).trial]] == [1.2]


def test_interval_above_one_beats_the_baseline(filled: Filled) -> None:
    filled.finish(candidate(), 1.01, 1.2, 1.3)
    assert the_best(filled).beats_baseline


def test_interval_that_reaches_one_does_not_beat_the_baseline(filled: Filled) -> None:
    filled.finish(candidate(), 1.0, 1.2, 1.3)
    assert not the_best(filled).beats_baseline


def test_screening_alone_does_not_beat_the_baseline(filled: Filled) -> None:
    filled.judge(candidate(), speedup=2.0)
    row = the_best(filled)
    assert (best_id(filled), row.beats_baseline) == (candidate().id, False)


def test_screened_best_stands_beside_its_sweeps_baselines(filled: Filled) -> None:
    filled.judge(candidate(), speedup=2.0, ms=1.25)
    screened = [timing("eager", (3.0,)), timing("compile", (2.6,))]
    final = [timing("eager", (1.0,), depth=Depth.FINAL)]
    filled.database.add_timings(filled.sweep, filled.environment.id, Accuracy.FP32, [*screened, *final])
    trial = the_best(filled).trial
    assert trial and (trial.baseline, trial.baselines) == ("compile", {"compile": 2.5})  # as its own figures tell


def test_wrong_candidate_is_never_best(filled: Filled) -> None:
    filled.judge(candidate(), Status.WRONG_VALUES)
    assert best_id(filled) is None


def test_speedup_is_over_the_fastest_baseline(filled: Filled) -> None:
    filled.finish(candidate(), 1.4, 1.5, 1.6)
    trial = the_best(filled).trial
    assert trial and (trial.baseline, trial.baselines) == ("compile", {"eager": 4.0, "compile": 3.0})


def test_environments_are_not_mixed_and_the_latest_counts(filled: Filled, database: Database) -> None:
    filled.finish(candidate("elsewhere"), 8.9, 9.0, 9.1)
    later = Filled(database, environment=environment("another cpu"))
    later.finish(candidate("here"), 1.1, 1.2, 1.3)
    assert best_id(filled) == candidate("here").id


def test_sweep_with_nothing_right_does_not_hide_an_earlier_best(filled: Filled, database: Database) -> None:
    filled.finish(candidate("right"), 1.1, 1.2, 1.3)
    later = Filled(database, environment=environment("another cpu"))
    later.judge(candidate("wrong"), Status.WRONG_VALUES)
    assert best_id(filled) == candidate("right").id


def test_strictest_class_of_accuracy_is_shown_unless_asked(filled: Filled, database: Database) -> None:
    filled.finish(candidate("exact"), 1.1, 1.2, 1.3)
    Filled(database, accuracy=Accuracy.KERNELBENCH).finish(candidate("loose"), 8.9, 9.0, 9.1)
    assert best_id(filled) == candidate("exact").id
    assert best_id(filled, accuracy=Accuracy.KERNELBENCH) == candidate("loose").id


def test_results_in_float32_are_those_of_pytorchs_own_flags_where_these_have_none(
    filled: Filled, database: Database
) -> None:
    filled.finish(candidate("exact"), 1.1, 1.2, 1.3)
    assert best_id(filled, accuracy=Accuracy.PYTORCH) == candidate("exact").id
    Filled(database, accuracy=Accuracy.PYTORCH).finish(candidate("own flags"), 1.0, 1.1, 1.2)
    assert best_id(filled, accuracy=Accuracy.PYTORCH) == candidate("own flags").id
    assert best_id(filled) == candidate("exact").id


def test_first_gpu_has_two_names(filled: Filled, database: Database) -> None:
    Filled(database, environment=environment("a gpu", "cuda"), device="cuda").finish(candidate("on cuda"), 1.1, 1.2, 1.3)
    assert best_id(filled, among=Selection(device="cuda:0")) == candidate("on cuda").id
    assert ranking.best(database, among=Selection(device="cuda:1")) == []


@pytest.mark.parametrize(("device", "winner"), [("cpu", "on cpu"), ("cuda", "on cuda"), ("cuda:1", "on cuda")])
def test_device_filters_by_kind_or_number(filled: Filled, database: Database, device: str, winner: str) -> None:
    filled.finish(candidate("on cpu"), 1.1, 1.2, 1.3)
    gpu = Filled(database, environment=environment("a gpu", "cuda"), device="cuda:1")
    gpu.finish(candidate("on cuda"), 1.1, 1.2, 1.3)
    assert best_id(filled, among=Selection(device=device)) == candidate(winner).id


def test_device_never_swept_on_has_no_best(filled: Filled) -> None:
    assert ranking.best(filled.database, among=Selection(device="cuda")) == []


def test_each_problem_has_its_own_best_and_the_latest_swept_comes_first(filled: Filled, database: Database) -> None:
    filled.finish(candidate("of the first"), 1.1, 1.2, 1.3)
    second = Filled(database, problem=problem("another", source="another source"))
    second.finish(candidate("of the second"), 1.1, 1.2, 1.3)
    assert [row.problem.name for row in ranking.best(database)] == ["another", "made_up"]
    assert [row.problem.name for row in ranking.best(database, limit=1)] == ["another"]


def judge_file(filled: Filled, text: str, low: float, speedup: float, high: float) -> str:
    """A file from outside, judged on its own; the id that the database has it under."""
    filled.sweep = filled.database.start_sweep(
        problem=filled.problem,
        environment=filled.environment,
        accuracy=filled.accuracy,
        device=filled.device,
        arguments={"file": "file.py"},
        combinations=1,
        budget=1,
        kind="eval",
    )
    filled.finish(candidate(text), low, speedup, high)
    return filled.sweep


def test_file_from_outside_is_never_best(filled: Filled) -> None:
    filled.finish(candidate("of a sweep"), 1.1, 1.2, 1.3)
    judge_file(filled, "from outside", 8.9, 9.0, 9.1)
    assert best_id(filled) == candidate("of a sweep").id


def test_problem_on_which_only_files_were_judged_has_no_best(database: Database) -> None:
    outside = Filled(database, problem=problem("another", source="another source"))
    with database.connections.write() as connection:
        connection.exec_driver_sql("DELETE FROM sweep")
    judge_file(outside, "from outside", 8.9, 9.0, 9.1)
    assert ranking.best(database) == []


def test_files_are_listed_among_the_sweeps_and_told_from_them(filled: Filled) -> None:
    sweep = filled.sweep
    judged = judge_file(filled, "from outside", 1.1, 1.2, 1.3)
    assert [(row.id, row.kind) for row in queries.sweeps(filled.database)] == [(judged, "eval"), (sweep, "sweep")]


def test_candidate_tells_sweeps_from_files_judged_on_their_own(filled: Filled) -> None:
    filled.judge(candidate("both"))
    judge_file(filled, "both", 1.1, 1.2, 1.3)
    judgements = queries.candidate(filled.database, candidate("both").id).judgements
    assert [trial.kind for judgement in judgements for trial in judgement.trials] == ["eval", "sweep"]


def test_sweeps_come_the_latest_first_with_their_counts(filled: Filled) -> None:
    filled.judge(candidate("a"))
    filled.judge(candidate("b"), Status.CRASHED)
    second = filled.start()
    rows = queries.sweeps(filled.database)
    assert [(row.id, row.right, row.tried) for row in rows] == [(second, 0, 0), (filled.sweep, 1, 2)]


def test_sweeps_of_one_name_only(filled: Filled, database: Database) -> None:
    other = Filled(database, problem=problem("another", source="another source"))
    assert [row.id for row in queries.sweeps(database, name="another")] == [other.sweep]


def test_sweep_shows_what_it_chose(filled: Filled) -> None:
    filled.judge(candidate("screened"), speedup=9.0)
    filled.finish(candidate("chosen"), 1.4, 1.5, 1.6)
    filled.database.finish_sweep(filled.sweep, "finished", 1.0, candidate("chosen").id)
    [row] = queries.sweeps(filled.database)
    assert row.best and row.best.candidate == candidate("chosen").id


def test_sweep_that_goes_on_shows_its_fastest_so_far(filled: Filled) -> None:
    filled.judge(candidate("slow"), speedup=1.1)
    filled.judge(candidate("fast"), speedup=1.2)
    [row] = queries.sweeps(filled.database)
    assert row.best and row.best.candidate == candidate("fast").id


def test_each_sweep_that_goes_on_shows_its_own_fastest_beside_its_own_baselines(filled: Filled) -> None:
    for text, speedup, baseline in (("first", 1.5, "eager"), ("second", 1.25, "compile")):
        filled.sweep = filled.start()
        filled.judge(candidate(f"slower {text}"), speedup=1.1)
        filled.judge(candidate(text), speedup=speedup)
        filled.database.add_timings(filled.sweep, filled.environment.id, Accuracy.FP32, [timing(baseline, (3.0,))])
    found = [row.best for row in queries.sweeps(filled.database, limit=2)]
    assert [best and (best.candidate, best.baseline) for best in found] == [
        (candidate("second").id, "compile"),
        (candidate("first").id, "eager"),
    ]


def test_failures_are_grouped_with_the_first_as_example(filled: Filled) -> None:
    for text, status in (("a", Status.CRASHED), ("b", Status.WRONG_VALUES), ("c", Status.WRONG_VALUES)):
        filled.judge(candidate(text), status, reason=f"why {text}")
    failures = queries.sweep(filled.database, filled.sweep).failures
    assert [(group.status, group.count, group.reason) for group in failures] == [
        (Status.WRONG_VALUES, 2, "why b"),
        (Status.CRASHED, 1, "why a"),
    ]


def test_duplicates_are_no_failures(filled: Filled) -> None:
    filled.judge(candidate(), Status.DUPLICATE)
    detail = queries.sweep(filled.database, filled.sweep)
    assert (detail.failures, detail.row.duplicates) == ((), 1)


def test_leaders_are_finalists_first_then_by_speedup(filled: Filled) -> None:
    filled.judge(candidate("screened"), speedup=9.0)
    filled.finish(candidate("second"), 1.1, 1.2, 1.3)
    filled.finish(candidate("first"), 1.4, 1.5, 1.6)
    leaders = queries.sweep(filled.database, filled.sweep, leaders=3).leaders
    assert [trial.candidate for trial in leaders] == [candidate(text).id for text in ("first", "second", "screened")]


def test_candidate_shows_every_evaluation_and_the_sweeps_that_use_it(filled: Filled) -> None:
    filled.judge(candidate())
    second = filled.start()
    known = filled.database.known(candidate().id, filled.environment.id, Accuracy.FP32)
    assert known
    filled.database.add_evaluation(second, candidate(), known, environment_id=filled.environment.id)
    [judgement] = queries.candidate(filled.database, candidate().id).judgements
    assert {trial.sweep for trial in judgement.trials} == {filled.sweep, second}


def test_beginning_of_an_id_names_it(filled: Filled) -> None:
    filled.judge(candidate())
    assert queries.resolve(filled.database, candidate().id[:12].upper()) == ("candidate", candidate().id)
    assert queries.resolve(filled.database, filled.sweep[:8]) == ("sweep", filled.sweep)


@pytest.mark.parametrize("prefix", ["f" * 20, "no id", ""])
def test_id_that_names_nothing_is_refused(filled: Filled, prefix: str) -> None:
    with pytest.raises(NotFoundError, match="no sweep or candidate"):
        queries.resolve(filled.database, prefix)


def test_beginning_of_two_ids_is_refused(filled: Filled) -> None:
    candidates = [candidate(str(number)) for number in range(17)]  # two of seventeen begin with the same digit
    for item in candidates:
        filled.judge(item)
    digits = [item.id[0] for item in candidates]
    with pytest.raises(NotFoundError, match="ambiguous"):
        queries.resolve(filled.database, next(digit for digit in digits if digits.count(digit) > 1))


@contextmanager
def statements(database: Database) -> Iterator[list[tuple[str, Any]]]:
    """The statements that are run inside the block, with their parameters."""
    seen: list[tuple[str, Any]] = []

    def listen(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        seen.append((statement, parameters))

    event.listen(database.connections.engine, "before_cursor_execute", listen)
    yield seen
    event.remove(database.connections.engine, "before_cursor_execute", listen)


@pytest.mark.parametrize("question", [queries.sweeps, ranking.best])
def test_more_sweeps_take_no_more_statements(filled: Filled, question: Callable[[Database], Any]) -> None:
    taken = []
    for number in range(3):
        another = Filled(filled.database, problem=problem(f"number {number}", source=f"source {number}"))
        another.judge(candidate(), speedup=1.5)
        with statements(filled.database) as seen:
            assert len(question(filled.database)) > number
        taken.append(len(seen))
    assert taken[0] == taken[1] == taken[2]


QUESTIONS: dict[str, Callable[[Filled, Candidate], Any]] = {
    "best of all": lambda filled, one: ranking.best(filled.database),
    "best of one": lambda filled, one: ranking.best(filled.database, problem_ids=[filled.problem.id]),
    "sweeps": lambda filled, one: queries.sweeps(filled.database, limit=20),
    "sweeps of a name": lambda filled, one: queries.sweeps(filled.database, name="made_up"),
    "sweep": lambda filled, one: queries.sweep(filled.database, filled.sweep, leaders=20),
    "candidate": lambda filled, one: queries.candidate(filled.database, one.id),
    "sweeps of a status": lambda filled, one: queries.sweeps(filled.database, among=Selection(status="ok"), limit=20),
    "candidates of a status": lambda filled, one: queries.of_status(filled.database, filled.sweep, Status.OK, 20),
    "timed": lambda filled, one: queries.timed(filled.database, [filled.sweep]),
    "reasons": lambda filled, one: queries.reasons(filled.database, filled.sweep, [one.id]),
    "failures": lambda filled, one: queries.failures(filled.database, queries.sweeps(filled.database, limit=20)),
    "rejections": lambda filled, one: queries.rejections(filled.database, [filled.sweep]),
    "comparison of candidates": lambda filled, one: comparison.candidates(filled.database, one.id, one.id),
    "comparison of sweeps": lambda filled, one: comparison.sweeps(filled.database, filled.sweep, filled.sweep),
    "resolve": lambda filled, one: queries.resolve(filled.database, one.id[:8]),
    "known": lambda filled, one: filled.database.known(one.id, filled.environment.id, Accuracy.FP32),
    "evaluated": lambda filled, one: filled.database.evaluated(filled.sweep),
    "add evaluation": lambda filled, one: filled.database.add_evaluation(
        filled.start(), one, evaluation(one), environment_id=filled.environment.id
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_question_reads_no_large_table_whole(filled: Filled, question: str) -> None:
    one = candidate()
    filled.judge(one, speedup=1.5)
    filled.finish(candidate("final"), 1.1, 1.2, 1.3)
    filled.database.finish_sweep(filled.sweep, "finished", 1.0, candidate("final").id)
    filled.database.add_rejections(filled.sweep, [Rejection("a plan", {}, "threads", "too many")])
    with statements(filled.database) as seen:
        QUESTIONS[question](filled, one)
    asked = [(text, parameters) for text, parameters in seen if text.startswith(("SELECT", "UPDATE"))]
    assert asked
    assert [table for text, parameters in asked for table in read_whole(filled.database, text, parameters)] == []


def read_whole(database: Database, statement: str, parameters: Any) -> list[str]:
    """The large tables that a statement reads from end to end, as the database plans it."""
    with database.connections.write() as connection:
        if database.connections.is_sqlite:
            plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            return [line for line in plan if re.match(rf"SCAN ({'|'.join(LARGE)})\b", line)]
        # PostgreSQL plans by size: here it is told, for this transaction, of a million rows in each large table.
        connection.exec_driver_sql(f"UPDATE pg_class SET reltuples = 1e6, relpages = 1 WHERE relname IN {LARGE}")
        for way in ("seqscan", "hashjoin", "mergejoin"):
            connection.exec_driver_sql(f"SET LOCAL enable_{way} = off")
        [found] = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", parameters).scalar_one()
        connection.rollback()
        return [node["Relation Name"] for node in nodes(found["Plan"]) if is_read_whole(node)]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The nodes of one of PostgreSQL's plans."""
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def is_read_whole(node: dict[str, Any]) -> bool:
    bounded = node.keys() & {"Index Cond", "Recheck Cond", "TID Cond"}
    return node.get("Relation Name") in LARGE and node["Node Type"].endswith("Scan") and not bounded


# What a search begins with ---------------------------------------------------------------------------------------

PLAN = candidate().plan


def fill(database: Database, name: str, **ms: float) -> Filled:
    """A sweep of the problem ``name`` with right candidates, by their sources."""
    swept = Filled(database, problem(name, source=name))
    for number, (text, median) in enumerate(ms.items()):
        swept.judge(candidate(f"{name} {text}", block=number), ms=median)
    return swept


def blocks(database: Database, sweep: str, each: int = 3) -> list[tuple[int, float]]:
    return [(of.params["k0.block"], of.slower) for of in queries.known(database, sweep, [PLAN], each)]


def test_known_are_of_the_own_problem_first_and_then_the_fastest(database: Database) -> None:
    fill(database, "other", a=2.0, b=1.0, c=1.5)
    own = fill(database, "own", a=9.0, b=6.0)
    assert blocks(database, own.start()) == [(1, 1.0), (0, 1.5), (1, 1.0), (2, 1.5), (0, 2.0)]


def test_known_are_a_few_of_each_problem(database: Database) -> None:
    for name in ("one", "two"):
        fill(database, name, a=1.0, b=2.0, c=3.0)
    assert blocks(database, Filled(database).sweep, each=1) == [(0, 1.0), (0, 1.0)]


def test_known_stays_the_same_while_the_sweep_runs(database: Database) -> None:
    earlier = fill(database, "earlier", a=1.0)
    sweep = Filled(database)
    for swept in (earlier, sweep):
        swept.judge(candidate("later", block=7), ms=0.5)
    assert blocks(database, sweep.sweep) == [(0, 1.0)]


def test_known_are_right_and_of_the_same_plan_environment_and_class(database: Database) -> None:
    wrong = Filled(database)
    wrong.judge(candidate("wrong"), Status.WRONG_VALUES)
    Filled(database, environment=environment("another cpu")).judge(candidate("elsewhere"))
    Filled(database, accuracy=Accuracy.TF32).judge(candidate("less accurate"))
    wrong.judge(Candidate("another plan", "pointwise[gelu]", {"k0.block": 1}, "cpu"))
    assert queries.known(database, wrong.start(), [PLAN], 3) == []
