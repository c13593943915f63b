"""What cannot be believed of a timing, and how long bursts are."""

import random

import pytest

from kgen.evaluator.protocol import Depth, Status
from kgen.evaluator.timing import FINAL_BURSTS, Runner, calls_per_burst, doubts, interleave, least_ms, screen
from kgen.evaluator.validate import Failure


class Worker:
    """A worker that answers each call with ``claim``."""

    def __init__(self, claim=lambda: 1):
        self.claim = claim
        self.requests = []

    def ask(self, do, fds=(), **request):
        self.requests.append(request)
        return {"ns": self.claim()}


def runner(name="a", claim=lambda: 1, cuda=False):
    return Runner(name, Worker(claim), cuda, 2.0, 1.0)


def timed(samples, overheads, synced=()):
    found = runner()
    found.bursts, found.overheads, found.synced = [tuple(samples)], list(overheads), list(synced)
    return found


@pytest.mark.parametrize("claim", [10**15, 0, -5, "1", None, 1.5])
def test_a_claim_that_the_clock_does_not_bear_out_is_suspicious(claim):
    with pytest.raises(Failure) as caught:
        runner(claim=lambda: claim).call(1, "event")
    assert caught.value.status is Status.SUSPICIOUS


def test_bursts_fill_their_time_within_bounds():
    assert [calls_per_burst(ms) for ms in (0.0, 0.001, 5.0, 500.0)] == [20, 20, 10, 2]


def test_a_screening_has_its_bursts_and_fresh_keys():
    subject = runner()
    screen(subject, random.Random(0))
    timing = subject.timing(Depth.SCREEN, "s")
    assert len(timing.bursts) == 5 and timing.prepare_ms == 1.0
    keys = [request["key"] for request in subject.worker.requests]
    assert len(set(keys)) == len(keys)


def test_finals_alternate_their_order():
    order = []
    subjects = [runner(name, claim=lambda name=name: order.append(name) or 1) for name in "ab"]
    kept = interleave(subjects, 0.0, random.Random(0), lambda *_: None)
    assert kept == subjects and all(len(s.bursts) == FINAL_BURSTS for s in subjects)
    assert order[:8] == list("abbaabba")


def test_a_finalist_that_fails_is_reported_and_the_others_go_on():
    lost = []
    subjects = [runner("good"), runner("bad", claim=lambda: None)]
    kept = interleave(subjects, 0.0, random.Random(0), lambda subject, failure: lost.append(subject.name))
    assert [s.name for s in kept] == ["good"] and lost == ["bad"]


def test_faster_than_moving_the_data_is_doubted():
    floor = least_ms(4_000_000_000, 1000.0, "cuda")
    assert floor == 1.0
    assert "less than reading" in doubts(timed([0.5], [0.1]), baseline_overhead=0.1, baseline_sync=None, floor_ms=floor)
    assert not doubts(timed([1.5], [0.1]), baseline_overhead=0.1, baseline_sync=None, floor_ms=floor)


def test_time_outside_the_samples_is_doubted():
    hidden = doubts(timed([1.0], [9.0] * 4), baseline_overhead=1.0, baseline_sync=None, floor_ms=0)
    assert "outside its sample" in hidden
    assert not doubts(timed([1.0], [1.1, 9.0, 9.0, 9.0, 1.1]), baseline_overhead=1.0, baseline_sync=None, floor_ms=0)


def test_work_that_only_a_synchronisation_shows_is_doubted():
    shown = doubts(timed([1.0], [0.1], [5.0]), baseline_overhead=0.1, baseline_sync=0.1, floor_ms=0)
    assert "outside its stream" in shown
    assert not doubts(timed([1.0], [0.1], [1.2]), baseline_overhead=0.1, baseline_sync=0.1, floor_ms=0)
