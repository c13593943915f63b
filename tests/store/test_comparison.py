"""B against A: from samples of one session, of two sessions with eager beside each, or apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from samples import Filled, candidate, environment, evaluation, problem

from kgen.errors import InputError, NotFoundError
from kgen.protocol import Accuracy, Depth, Status, Timing
from kgen.store import Database, comparison
from kgen.store.results import Comparison

A, B = candidate("a"), candidate("b")


def bursts(ms: float, wobble: float = 0.001) -> tuple[tuple[float, ...], ...]:
    """Samples about ``ms``, a little off from burst to burst."""
    return tuple((ms * (1 + wobble * (number % 3 - 1)),) * 3 for number in range(9))


def finals(filled: Filled, session: str, **ms: float) -> None:
    """Time finalists and baselines interleaved; names are candidates' texts, or ``eager``."""
    timings = []
    for name, value in ms.items():
        subject = name if name == "eager" else candidate(name).id
        timings.append(Timing(subject, Depth.FINAL, session, bursts(value)))
        if name != "eager":
            filled.finish(candidate(name), 1.0, 1.1, 1.2)
    filled.database.add_timings(filled.sweep, filled.environment.id, filled.accuracy, timings)


def told(found: list[Comparison]) -> list[tuple[str, str, str]]:
    return [(item.what, item.verdict, item.how) for item in found]


@pytest.mark.parametrize(("ms", "verdict"), [(1.0, "faster"), (4.0, "slower"), (2.0, "same")])
def test_candidates_of_one_session_are_compared_round_by_round(filled: Filled, ms: float, verdict: str) -> None:
    finals(filled, "s", a=2.0, b=ms)
    [found] = comparison.candidates(filled.database, A.id, B.id)
    assert (found.verdict, found.how) == (verdict, comparison.INTERLEAVED)
    assert found.ratio.mid == pytest.approx(2.0 / ms)


@pytest.mark.parametrize("sessions", [("s", "s"), ("first", "second")])
def test_times_and_ratio_of_a_comparison_agree(filled: Filled, sessions: tuple[str, str]) -> None:
    finals(filled, sessions[0], a=2.0, **({"b": 3.0} if sessions[0] == sessions[1] else {}), eager=4.0)
    if sessions[0] != sessions[1]:
        filled.sweep = filled.start()
        finals(filled, sessions[1], b=3.0, eager=6.0)
    [found] = comparison.candidates(filled.database, A.id, B.id)
    assert found.a.median_ms / found.b.median_ms == pytest.approx(found.ratio.mid)


def test_samples_that_are_far_apart_tell_nothing(filled: Filled) -> None:
    finals(filled, "s", a=2.0)
    filled.finish(B, 1.0, 1.1, 1.2)
    noisy = Timing(B.id, Depth.FINAL, "s", bursts(2.0, wobble=0.3))
    filled.database.add_timings(filled.sweep, filled.environment.id, filled.accuracy, [noisy])
    [found] = comparison.candidates(filled.database, A.id, B.id)
    assert found.verdict == "cannot tell"


def test_candidates_of_two_sessions_are_compared_by_eager_beside_them(filled: Filled) -> None:
    finals(filled, "first", a=2.0, eager=4.0)
    filled.sweep = filled.start()
    finals(filled, "second", b=3.0, eager=6.0)  # the machine was slower as a whole
    [found] = comparison.candidates(filled.database, A.id, B.id)
    assert (found.verdict, found.how) == ("same", comparison.BESIDE_EAGER)


def test_candidates_without_eager_beside_them_are_compared_by_their_times(filled: Filled) -> None:
    finals(filled, "first", a=2.0)
    filled.sweep = filled.start()
    finals(filled, "second", b=3.0)
    [found] = comparison.candidates(filled.database, A.id, B.id)
    assert (found.verdict, found.how) == ("slower", comparison.APART)


def test_candidates_are_compared_in_each_environment_where_both_were_timed(filled: Filled, database: Database) -> None:
    finals(filled, "here", a=2.0, b=1.0)
    finals(Filled(database, environment=environment("another cpu")), "there", a=1.0, b=2.0)
    finals(Filled(database, environment=environment("a third")), "alone", a=1.0)
    found = comparison.candidates(database, A.id, B.id)
    assert {(item.environment and item.environment.device, item.verdict) for item in found} == {
        ("a cpu", "faster"),
        ("another cpu", "slower"),
    }


def test_candidates_never_timed_in_one_place_are_refused(filled: Filled, database: Database) -> None:
    finals(filled, "here", a=2.0)
    finals(Filled(database, environment=environment("another cpu")), "there", b=1.0)
    with pytest.raises(NotFoundError, match="never both timed"):
        comparison.candidates(database, A.id, B.id)


def test_samples_of_what_was_overturned_say_nothing(filled: Filled) -> None:
    finals(filled, "s", a=2.0, b=1.0)
    with filled.database.connections.write() as connection:
        connection.exec_driver_sql(f"UPDATE trial SET status = '{Status.SUSPICIOUS}' WHERE candidate_id = '{B.id}'")
    with pytest.raises(NotFoundError):
        comparison.candidates(filled.database, A.id, B.id)


def two_sweeps(filled: Filled, other: Filled) -> list[Comparison]:
    """Two sweeps: the second one's best is another candidate, and twice as fast; what both have is as it was."""
    finals(filled, "first", a=2.0, eager=4.0)
    filled.database.finish_sweep(filled.sweep, "finished", 1.0, A.id)
    finals(other, "second", a=2.0, b=1.0, eager=4.0)
    other.database.finish_sweep(other.sweep, "finished", 1.0, B.id)
    return comparison.sweeps(filled.database, filled.sweep, other.sweep)


def test_sweeps_are_compared_by_their_best_their_baselines_and_what_they_share(filled: Filled) -> None:
    found = two_sweeps(filled, replace(filled))
    assert told(found) == [
        ("best", "faster", comparison.BESIDE_EAGER),
        ("eager", "same", comparison.APART),
        ("candidate", "same", comparison.BESIDE_EAGER),
    ]
    assert [(item.a.subject, item.b.subject) for item in found] == [(A.id, B.id), ("eager", "eager"), (A.id, A.id)]


def test_candidates_that_two_sweeps_share_are_limited(filled: Filled) -> None:
    other = replace(filled)
    two_sweeps(filled, other)
    shared = {"a": 2.0, "c": 2.5, "d": 2.5}
    finals(filled, "third", **shared)
    finals(other, "fourth", **shared)
    found = comparison.sweeps(filled.database, filled.sweep, other.sweep, limit=2)
    assert [item.what for item in found].count("candidate") == 2


def test_sweeps_of_two_environments_are_compared_by_their_times(filled: Filled, database: Database) -> None:
    found = two_sweeps(filled, Filled(database, environment=environment("another cpu")))
    assert [(item.how, item.environment) for item in found] == [(comparison.APART, None)] * 3


def test_sweeps_of_two_problems_are_refused(filled: Filled, database: Database) -> None:
    other = Filled(database, problem=problem("another", source="another source"))
    with pytest.raises(InputError, match="different problems"):
        comparison.sweeps(database, filled.sweep, other.sweep)


def test_sweeps_of_two_classes_are_refused(filled: Filled, database: Database) -> None:
    other = Filled(database, accuracy=Accuracy.TF32)
    with pytest.raises(InputError, match="not compared"):
        comparison.sweeps(database, filled.sweep, other.sweep)


def test_sweeps_without_a_common_figure_are_refused(filled: Filled) -> None:
    with pytest.raises(NotFoundError, match="nothing in common"):
        comparison.sweeps(filled.database, filled.sweep, filled.start())


def test_evaluation_that_was_taken_over_is_the_same(filled: Filled) -> None:
    given = replace(evaluation(A), timing=Timing(A.id, Depth.SCREEN, "s", bursts(2.0, wobble=0.2)))
    filled.database.add_evaluation(filled.sweep, A, given, environment_id=filled.environment.id, speedup=1.5)
    known = filled.database.known(A.id, filled.environment.id, Accuracy.FP32)
    assert known
    second = filled.start()
    filled.database.add_evaluation(second, A, known, environment_id=filled.environment.id, speedup=1.5)
    [best] = comparison.sweeps(filled.database, filled.sweep, second)
    assert best.verdict == "same"


def test_environments_are_compared_by_the_latest_sweeps_of_each_problem(filled: Filled, database: Database) -> None:
    other = Filled(database, environment=environment("another cpu"))
    two_sweeps(filled, other)
    found = comparison.environments(database, filled.environment.id, other.environment.id)
    assert [(item.what, item.verdict) for item in found] == [
        ("best", "faster"),
        ("eager", "same"),
        ("candidate", "same"),
    ]


def test_environments_with_nothing_in_common_are_refused(filled: Filled, database: Database) -> None:
    Filled(database, environment=environment("another cpu"))
    with pytest.raises(NotFoundError, match="nothing was swept in both"):
        comparison.environments(database, filled.environment.id, environment("another cpu").id)
