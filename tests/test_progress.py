"""What is told of a sweep as it runs."""

from __future__ import annotations

import pytest
from samples import candidate, environment, evaluation

from kgen import events
from kgen.views import progress


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, as the one item of a list."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_time_left_is_at_the_rate_since_the_first_candidate_which_waits_for_all_that_is_set_up(
    clock: list[float],
) -> None:
    tally = progress.Tally()
    tally.add(events.Started("a", "made_up", "train", "cpu", environment(), "fp32", 2, 10, 3, 5, 1, "kgen.db"))
    clock[0] += 30
    judged = events.Evaluated(1, candidate(), evaluation(candidate()), 2.0, 1.5)
    tally.add(judged)
    assert tally.seconds_left is None
    clock[0] += 2
    tally.add(judged)
    assert tally.seconds_left == 4.0  # two of five are left, one was found done
