"""What cannot be believed of a timing, and how long bursts are."""

import itertools
import random

import pytest

from kgen.evaluator.conditions import worse
from kgen.evaluator.protocol import Depth, Status
from kgen.evaluator.timing import (
    FINAL_BURSTS, Habits, Runner, calls_of_finals, calls_per_burst, doubts, interleave, least_ms, screen,
)
from kgen.evaluator.validate import Failure


class Worker:
    """A worker that claims ``claim()`` nanoseconds for each call."""

    def __init__(self, claim=lambda: 1):
        self.claim = claim
        self.requests = []

    def ask(self, do, fds=(), **request):
        self.requests.append((do, request))
        return {"ns": self.claim()} if do == "go" else {}

    def settle(self):
        return 1.0, 0


def runner(name="a", claim=lambda: 1, cuda=False, modes=("eval",)):
    return Runner(name, Worker(claim), cuda, modes, 2.0, 1.0)


def timed(samples, outside, synced=(), fetches=()):
    found = runner()
    found.bursts, found.outside, found.synced, found.fetches = [tuple(samples)], list(outside), list(synced), fetches
    return found


EAGER = Habits(outside=0.2, unjoined=0.1, fetch=2.0, arm=4.0, settle=3.0, wakeups=1)


@pytest.mark.parametrize("claim", [10**15, 0, -5, "1", None, 1.5])
def test_a_claim_that_the_clock_does_not_bear_out_is_suspicious(claim):
    with pytest.raises(Failure) as caught:
        runner(claim=lambda: claim).call(random.Random(0), "event")
    assert caught.value.status is Status.SUSPICIOUS


def test_bursts_fill_their_time_within_bounds():
    assert [calls_per_burst(ms) for ms in (0.0, 0.001, 5.0, 500.0)] == [20, 20, 6, 2]


def test_a_screening_has_its_bursts_and_fresh_keys():
    subject = runner()
    screen(subject, random.Random(0))
    timing = subject.timing(Depth.SCREEN, "s")
    assert len(timing.bursts) == 5 and timing.prepare_ms == 1.0
    keys = [request["key"] for do, request in subject.worker.requests if do == "arm"]
    assert len(set(keys)) == len(keys) == 100


def test_what_a_worker_is_told_before_a_call_does_not_say_whether_its_output_is_checked():
    def told(checked):
        subject = runner()
        subject.call(random.Random(0), "event", checked=checked)
        return subject.worker.requests

    assert told(True)[:2] == told(False) and told(True)[2][0] == "fetch"


def test_a_screening_checks_an_output_of_every_burst_and_the_last():
    subject = runner()
    screen(subject, random.Random(0))
    done = [do for do, _ in subject.worker.requests]
    assert done.count("fetch") == 5 and done[-1] == "fetch"


def test_a_call_goes_through_every_mode():
    subject = runner(modes=("train", "eval"), claim=lambda: 5)
    assert subject.call(random.Random(0), "event") == 10 / 1e6
    assert [request["mode"] for do, request in subject.worker.requests if do == "arm"] == ["train", "eval"]


def test_finals_go_through_each_order_both_ways():
    calls = []
    subjects = [runner(name, claim=lambda name=name: calls.append(name) or 1) for name in "abc"]
    kept = interleave(subjects, 0.0, random.Random(0), lambda *_: None)
    assert kept == subjects and all(len(s.bursts) == FINAL_BURSTS for s in subjects)
    rounds = calls[len(subjects) :]  # behind one call of each, which tells how long they take
    turns = [name for name, _ in itertools.groupby(rounds[: len(rounds) // 10])]
    assert turns == turns[::-1] and set(turns) == set("abc")


@pytest.mark.parametrize(("seconds", "lap", "cuda", "calls"), [
    (20.0, 0.05, False, 19), (20.0, 0.05, True, 12), (20.0, 1.0, True, 1), (20.0, 1e-9, True, 20)])
def test_finals_fill_their_time(seconds, lap, cuda, calls):
    assert calls_of_finals(seconds, lap, cuda=cuda) == calls


def test_a_finalist_that_fails_is_reported_and_the_others_go_on():
    lost = []
    subjects = [runner("good"), runner("bad", claim=lambda: None)]
    kept = interleave(subjects, 0.0, random.Random(0), lambda subject, failure: lost.append(subject.name))
    assert [s.name for s in kept] == ["good"] and lost == ["bad"]


def test_faster_than_moving_the_data_is_doubted():
    floor = least_ms(4_000_000_000, 1000.0, "cuda")
    assert floor == 1.0
    assert "less than reading" in doubts(timed([0.5], [0.1]), eager=EAGER, floor_ms=floor)
    assert not doubts(timed([1.5], [0.1]), eager=EAGER, floor_ms=floor)


def test_time_outside_the_samples_is_doubted():
    assert "outside its sample" in doubts(timed([1.0], [0.9] * 4), eager=EAGER, floor_ms=0)
    assert not doubts(timed([1.0], [0.3, 9.0, 9.0, 0.3, 0.3]), eager=EAGER, floor_ms=0)


def test_a_sample_that_hides_a_tenth_of_a_long_call_is_doubted():
    assert "outside its sample" in doubts(timed([36.0], [4.2] * 4), eager=EAGER, floor_ms=0)


def test_work_that_only_a_synchronisation_shows_is_doubted():
    assert "outside its stream" in doubts(timed([1.0], [0.1], [5.0]), eager=EAGER, floor_ms=0)
    assert not doubts(timed([1.0], [0.1], [1.2]), eager=EAGER, floor_ms=0)


def test_work_done_when_the_output_is_fetched_is_doubted():
    assert "beside the call" in doubts(timed([1.0], [0.1], fetches=[9.0, 8.0]), eager=EAGER, floor_ms=0)
    assert not doubts(timed([1.0], [0.1], fetches=[9.0, 2.5]), eager=EAGER, floor_ms=0)


def test_work_done_before_the_call_is_doubted():
    subject = timed([1.0], [0.1])
    subject.arms = [30.0, 13.0]
    assert "getting ready" in doubts(subject, eager=EAGER, floor_ms=0)
    subject.arms = [30.0, 5.0]
    assert not doubts(subject, eager=EAGER, floor_ms=0)


def test_work_while_nothing_is_asked_is_doubted():
    subject = timed([1.0], [0.1])
    subject.settles = [0.0, 28.0]
    assert "nothing is asked" in doubts(subject, eager=EAGER, floor_ms=0)
    subject.settles = [0.0, 6.0]
    assert not doubts(subject, eager=EAGER, floor_ms=0)


def test_threads_that_do_not_sleep_are_doubted():
    subject = timed([1.0], [0.1])
    subject.wakeups = [200, 150]
    assert "wake up" in doubts(subject, eager=EAGER, floor_ms=0)
    subject.wakeups = [200, 0]
    assert not doubts(subject, eager=EAGER, floor_ms=0)


def test_conditions_of_a_session_are_the_worse_of_both_its_ends():
    before = (("cache", "cold"), ("sm_clock_mhz", 1980.0), ("temperature_c", 40.0), ("throttle", "none"))
    after = (("cache", "cold"), ("sm_clock_mhz", 1500.0), ("temperature_c", 60.0), ("throttle", "power cap"))
    assert dict(worse(before, after)) == {
        "cache": "cold", "sm_clock_mhz": 1500.0, "temperature_c": 60.0, "throttle": "power cap"}
