"""Intervals over bursts, verdicts and ties."""

import math
import random

import pytest

from kgen.protocol import Depth, Timing
from kgen.protocol.statistics import (
    Interval,
    explained,
    fastest,
    leaders,
    median_interval,
    median_ms,
    quotient,
    ratio_interval,
    standing,
    verdict,
)


def timing(subject, scale=1.0, noise=0.002, seed=0, bursts=20, session="s"):
    generator = random.Random(seed)
    samples = tuple(tuple(scale * generator.gauss(1, noise) for _ in range(5)) for _ in range(bursts))
    return Timing(subject, Depth.FINAL, session, samples)


def test_the_median_is_that_of_the_bursts_medians():
    assert median_ms([(1.0, 2.0, 9.0), (3.0, 3.0, 3.0), (4.0,)]) == 3.0


def test_no_samples_raise():
    with pytest.raises(ValueError, match="no samples"):
        median_ms([])
    with pytest.raises(ValueError, match="no samples"):
        ratio_interval(timing("a"), Timing("b", Depth.FINAL, "s", ()))


def test_the_interval_holds_the_true_ratio_and_its_estimate():
    interval = ratio_interval(timing("a", 1.3, seed=1), timing("b", 1.0, seed=2))
    assert interval.low <= interval.mid <= interval.high
    assert interval.low <= 1.3 * 1.002 and interval.high >= 1.3 * 0.998


def test_the_same_seed_gives_the_same_interval():
    a, b = timing("a", seed=1), timing("b", seed=2)
    assert ratio_interval(a, b, seed=3) == ratio_interval(a, b, seed=3)


def test_a_drift_that_both_went_through_does_not_widen_the_interval():
    drift = [1 + 0.5 * (i % 2) for i in range(20)]
    a = Timing("a", Depth.FINAL, "s", tuple((2 * d,) for d in drift))
    b = Timing("b", Depth.FINAL, "s", tuple((d,) for d in drift))
    assert ratio_interval(a, b).width == pytest.approx(0)


def test_a_subject_is_as_fast_as_itself():
    assert ratio_interval(timing("a"), timing("a")) == Interval(1.0, 1.0, 1.0)


def test_unlike_sessions_are_compared_by_their_medians():
    a, b = timing("a", 2.0, seed=1), timing("b", seed=2, session="other", bursts=7)
    assert ratio_interval(a, b).mid == median_ms(a) / median_ms(b)


@pytest.mark.parametrize("low,high,says", [
    (1.02, 1.05, "faster"), (0.9, 0.95, "slower"), (0.99, 1.015, "same"), (0.9, 1.1, "cannot tell"),
    (1.005, 1.05, "cannot tell"),
])
def test_verdicts(low, high, says):
    assert verdict(Interval(low, (low + high) / 2, high)) == says


def test_a_module_three_percent_slower_is_told_apart():
    assert verdict(ratio_interval(timing("a", 1.03, seed=5), timing("b", 1.0, seed=6))) == "faster"


def test_equal_subjects_tie_and_the_tie_break_decides():
    ranks = leaders([timing("b", seed=1), timing("a", 1.0005, seed=2), timing("slow", 1.2, seed=3)],
                    tie_break=lambda t: ({"a": 1, "b": 2, "slow": 0}[t.subject],))
    assert [(r.timing.subject, r.tie) for r in ranks] == [("a", True), ("b", True), ("slow", False)]


def test_the_tie_break_prefers_no_slower_subject_whose_interval_is_wide():
    """A few rounds in which the machine was busy widen the interval; the estimate stays at 5%."""
    fast = rounds("fast", *[1.0] * 7, *[1.3] * 4)
    slow = rounds("slow", *[1.05] * 11)
    assert verdict(ratio_interval(fast, slow)) == "cannot tell"
    ranks = leaders([fast, slow], tie_break=lambda t: ({"slow": 0, "fast": 1}[t.subject],))
    assert [(r.timing.subject, r.tie) for r in ranks] == [("fast", True), ("slow", True)]


def test_a_clear_winner_is_no_tie():
    ranks = leaders([timing("slow", 1.2, seed=3), timing("fast", seed=1)])
    assert [(r.timing.subject, r.tie) for r in ranks] == [("fast", False), ("slow", False)]


def rounds(subject, *ms):
    return Timing(subject, Depth.FINAL, "s", tuple((one,) for one in ms))


def test_the_fastest_is_who_wins_head_to_head():
    """Medians mislead where the machine slows down in the rounds that a subject happens to be faster in."""
    wins = rounds("wins", *[0.9, 1.9] * 8, 1.9)
    other = rounds("other", *[1.0, 2.0] * 8, 1.0)
    assert median_ms(other) < median_ms(wins)
    assert [(r.timing.subject, r.tie) for r in leaders([other, wins])] == [("wins", False), ("other", False)]


def test_the_time_and_the_speedup_of_a_standing_agree():
    """In the rounds where the machine is slow, the subject is fast: its own median would say something else."""
    reference, subject = rounds("eager", *[4.4, 6.0] * 8), rounds("a", *[5.72, 3.0] * 8)
    found = standing(reference, subject)
    assert found.ms * found.speedup.mid == pytest.approx(median_ms(reference))
    assert standing(reference, reference).ms == median_ms(reference)


def test_the_fastest_is_the_one_that_beats_every_rival():
    assert fastest([timing("slow", 1.2, seed=3), timing("fast", seed=1)]).subject == "fast"


@pytest.mark.parametrize(("interval", "busy"), [
    ((0.8, 1.2, 1.6), True), ((0.99, 1.0, 1.01), False), ((1.005, 1.03, 1.05), False), ((0.8, 0.9, 0.95), False),
])
def test_the_machine_was_too_busy_where_a_wide_interval_holds_one(interval, busy):
    assert Interval(*interval).cannot_tell is busy


def test_groups_that_decide_all_explain_all() -> None:
    assert explained([[1.0, 1.0], [2.0, 2.0]]) == 1.0


def test_groups_that_decide_nothing_explain_nothing() -> None:
    assert explained([[1.0, 2.0], [1.0, 2.0]]) == 0.0


def test_groups_that_decide_half_explain_what_is_left_after_chance() -> None:
    # Between the groups lies 4 of 8, and by chance they would explain 4 / 2: (4 - 2) / 8.
    assert explained([[0.0, 2.0], [2.0, 4.0]]) == pytest.approx(0.25)


@pytest.mark.parametrize("groups", [[], [[1.0]], [[1.0], [2.0]], [[3.0, 3.0], [3.0]]])
def test_groups_of_single_or_of_equal_values_explain_nothing(groups: list[list[float]]) -> None:
    assert explained(groups) == 0.0


def test_interval_of_a_median_holds_it_and_is_as_wide_as_the_bursts_differ() -> None:
    steady, wild = median_interval([[2.0]] * 9), median_interval([[1.0], [2.0], [3.0]] * 3)
    assert (steady.low, steady.mid, steady.high) == (2.0, 2.0, 2.0)
    assert wild.low < wild.mid == 2.0 < wild.high


def test_interval_of_no_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


def test_errors_of_a_quotient_add_in_quadrature() -> None:
    part = Interval(1 / 1.03, 1.0, 1.03)
    other = Interval(2 / 1.04, 2.0, 2 * 1.04)
    found = quotient(other, part)
    wide = math.exp(math.hypot(math.log(1.03), math.log(1.04)))
    assert (found.low, found.mid, found.high) == pytest.approx((2 / wide, 2.0, 2 * wide))
