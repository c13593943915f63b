"""What cannot be believed of a timing, and how long bursts are."""

import itertools
import random
import time
from dataclasses import replace

import pytest

from kgen.evaluator.correctness.validate import Failure
from kgen.evaluator.protocol import Depth, Status
from kgen.evaluator.timing.conditions import worse
from kgen.evaluator.timing.measure import (
    FINAL_BURSTS, Habits, Runner, believe, calls_of_finals, calls_per_burst, doubts, finals, interleave, least_ms,
    screen,
)


class Worker:
    """A worker that claims ``claim()`` nanoseconds for each call."""

    def __init__(self, claim=lambda: 1):
        self.claim = claim
        self.requests = []

    def ask(self, do, fds=(), **request):
        self.requests.append((do, request))
        return {}

    def go(self, **request):
        started = time.perf_counter_ns()
        self.requests.append(("go", request))
        return {"ns": self.claim()}, time.perf_counter_ns() - started, 1000

    def settle(self):
        return 1.0, 0


def runner(name="a", claim=lambda: 1, cuda=False, modes=("eval",)):
    return Runner(name, Worker(claim), cuda, modes, 2.0, 1.0)


def timed(samples=(1.0,), outside=(0.1,), **seen):
    """A runner with these samples in one burst, and what else was seen of its calls."""
    found = runner()
    found.bursts, found.outside = [tuple(samples)], list(outside)
    return replace(found, **seen)


EAGER = Habits(outside=0.2, hidden=0.2, unjoined=0.1, fetch=2.0, arm=4.0, most_arm=3.0, rest=0.5,
               behind=0.002, settle=3.0, wakeups=1)


@pytest.mark.parametrize("claim", [10**15, 0, -5, "1", None, 1.5])
def test_a_claim_that_the_clock_does_not_bear_out_is_suspicious(claim):
    with pytest.raises(Failure) as caught:
        runner(claim=lambda: claim).call(random.Random(0), "event")
    assert caught.value.status is Status.SUSPICIOUS


@pytest.mark.parametrize("asked", ["arm", "fetch"])
def test_an_output_that_changes_after_its_call_is_suspicious(asked):
    subject = runner()
    answer = subject.worker.ask
    subject.worker.ask = lambda do, **request: answer(do, **request) | {"late": do == asked}
    with pytest.raises(Failure, match="changed after forward returned"):
        subject.call(random.Random(0), "event", checked=True)


def test_bursts_fill_their_time_within_bounds():
    assert [calls_per_burst(ms, "cpu") for ms in (0.0, 0.001, 5.0, 500.0)] == [10, 10, 6, 2]
    assert [calls_per_burst(ms, "cuda") for ms in (0.0, 0.8, 5.0, 500.0)] == [4, 4, 3, 2]


def test_a_screening_has_its_bursts_and_fresh_keys():
    subject = runner()
    screen(subject, random.Random(0))
    timing = subject.timing(Depth.SCREEN, "s")
    assert len(timing.bursts) == 5 and timing.prepare_ms == 1.0
    keys = [request["key"] for do, request in subject.worker.requests if do == "arm"]
    assert len(set(keys)) == len(keys) == 50


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


def test_a_screening_has_a_checked_call_with_other_values_and_later_one_of_each_kind_that_are_no_samples():
    def values(seed, known):
        subject, checked = runner(), []
        subject.values, subject.check = known, lambda reply, mode, key, values, lines: checked.append(values)
        screen(subject, random.Random(seed))
        arms = [request["values"] for do, request in subject.worker.requests if do == "arm"]
        assert sum(map(len, subject.bursts)) == 50 and checked.count("given") == 5
        others = [index for index, values in enumerate(arms) if values != "given"]
        assert [arms[index] for index in others] == [values for values in checked if values != "given"]
        assert len(arms) - 50 == len(others) == (1 + len(known) if known else 0)
        assert {arms[index] for index in others[1:]} == set(known)
        return others

    found = [values(seed, ["scaled", "non-finite"]) for seed in range(20)]
    assert len(set(map(tuple, found))) > 6 and any(places[-1] == 52 for places in found)
    assert values(0, []) == []


def test_a_screening_checks_columns_at_its_end():
    subject, checked = runner(), []
    subject.values, subject.check = [], lambda reply, mode, key, values, lines: checked.append(lines)
    screen(subject, random.Random(0))
    assert checked == [False] * 4 + [True]


def test_a_screening_on_a_gpu_checks_a_synchronised_call():
    def checked(seed):
        subject = runner(cuda=True)
        screen(subject, random.Random(seed))
        requests = [(do, request.get("how")) for do, request in subject.worker.requests]
        return [how for (_, how), (do, _) in zip(requests, requests[1:]) if do == "fetch"].count("sync")

    assert all(1 <= checked(seed) <= 5 for seed in range(5))


def test_a_device_that_is_done_later_than_the_stream_is_suspicious():
    assert "outside its stream" in doubts(timed(behind=[0.002, 0.009, 0.009]), eager=EAGER, floor_ms=0.0)
    assert not doubts(timed(behind=[0.002, 0.002, 0.003]), eager=EAGER, floor_ms=0.0)


def test_finals_have_calls_with_other_values_that_are_no_samples():
    subject = runner(claim=lambda: 5)
    subject.values = ["scaled"]
    interleave([subject], 0.0, random.Random(0), lambda *_: None)
    asked = [request.get("values") for _, request in subject.worker.requests]
    assert 3 <= asked.count("scaled") <= 10 and len(subject.bursts) == FINAL_BURSTS


def test_which_call_of_a_screening_is_watched_is_drawn():
    def watched(seed):
        subject = runner()
        screen(subject, random.Random(seed))
        arms = [request["watched"] for do, request in subject.worker.requests if do == "arm"]
        assert sum(arms) == 1
        return arms.index(True)

    assert len(set(map(watched, range(20)))) > 10


def test_a_call_goes_through_every_mode():
    subject = runner(modes=("train", "eval"), claim=lambda: 5)
    assert subject.call(random.Random(0), "event") == 10 / 1e6
    assert [request["mode"] for do, request in subject.worker.requests if do == "arm"] == ["train", "eval"]


def test_a_watched_call_is_as_restless_as_it_was_at_worst():
    subject = runner(modes=("train", "eval"), claim=lambda: 5)
    seen = iter([(1.0, 0), (9.0, 2), (3.0, 7), (2.0, 0)])
    subject.worker.settle = lambda: next(seen)
    subject.call(random.Random(0), "event", watched=True)
    assert (subject.settles, subject.wakeups) == ([9.0], [7])


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


@pytest.mark.parametrize("answer", [False, True])
def test_finals_that_are_doubted_are_timed_once_more_and_keep_no_sample(answer):
    sessions = []

    def doubted(runners):
        sessions.append([tuple(r.bursts) for r in runners])
        return answer

    subjects = [runner(name, claim=lambda claims=itertools.count(1): next(claims)) for name in "ab"]
    kept = finals(subjects, 0.0, random.Random(0), lambda *_: None, doubted)
    assert kept == subjects and len(sessions) == 1
    again = [tuple(r.bursts) != bursts for r, bursts in zip(kept, sessions[0])]
    assert again == [answer] * 2 and all(len(r.bursts) == FINAL_BURSTS for r in kept)


def test_a_finalist_that_fails_is_reported_and_the_others_go_on():
    lost = []
    subjects = [runner("good"), runner("bad", claim=lambda: None)]
    kept = interleave(subjects, 0.0, random.Random(0), lambda subject, failure: lost.append(subject.name))
    assert [s.name for s in kept] == ["good"] and lost == ["bad"]


def test_faster_than_moving_the_data_is_doubted():
    floor = least_ms(4_000_000_000, 1000.0, "cuda")
    assert floor == 1.0
    assert "less than reading" in doubts(timed([0.5]), eager=EAGER, floor_ms=floor)
    assert not doubts(timed([1.5]), eager=EAGER, floor_ms=floor)


DOUBTED = {
    "time outside the samples": (timed(outside=[0.9] * 4), "outside its sample"),
    "a tenth of a long call, hidden": (timed([36.0], [4.2] * 4), "outside its sample"),
    "work that only a synchronisation shows": (timed(synced=[5.0]), "outside its stream"),
    "work done when the output is fetched": (timed(fetches=[9.0, 8.0]), "its output takes"),
    "work done before the call": (timed(arms=[30.0, 13.0]), "getting ready"),
    "work done before every call, of half its time": (timed(arms=[7.0, 7.1]), "ms at least"),
    "work done when the time is told": (timed(rests=[5.0, 3.1, 3.2]), "what follows a call"),
    "work done before three calls of five": (timed(arms=[5.0, 30.0, 30.0, 5.0, 30.0]), "getting ready"),
    "time that three samples of five leave out": (
        timed([5.0, 0.1, 0.1, 5.0, 0.1], [0.1, 5.0, 5.0, 0.1, 5.0], taken=[5.1] * 5), "middle one of their samples"),
    "work while nothing is asked, but for one time": (timed(settles=[21.0, 28.0, 5.0]), "nothing is asked"),
    "work while nothing is asked": (timed(settles=[21.0, 28.0]), "nothing is asked"),
    "threads that do not sleep": (timed(wakeups=[200, 150]), "wake up"),
}
BELIEVED = {
    "two slow calls of five": timed(outside=[0.3, 9.0, 9.0, 0.3, 0.3]),
    "launches that a synchronised call has more": timed(synced=[4.0], launches=[3.0]),
    "launches in both modes": timed(synced=[4.0], launches=[1.5], modes=("train", "eval")),
    "a stream that ends with the device": timed(behind=[0.001]),
    "one slow fetch": timed(fetches=[9.0, 2.5]),
    "one slow start": timed(arms=[30.0, 5.0, 6.0]),
    "threads that spin for some milliseconds": timed(settles=[6.0, 8.0]),
    "threads that came late to rest once": timed(settles=[28.0, 6.0, 5.0]),
    "threads that woke up once": timed(wakeups=[200, 0, 1]),
    "whole calls that scatter as their samples do": timed([1.0, 1.0, 4.0], taken=[1.1, 1.1, 4.1]),
}


def test_a_stream_may_end_with_the_device_where_pytorchs_launches_show():
    eager = replace(EAGER, behind=-0.004)  # less the time between the launches of two events
    assert not doubts(timed(behind=[0.001]), eager=eager, floor_ms=0)
    assert "outside its stream" in doubts(timed(behind=[0.01]), eager=eager, floor_ms=0)


@pytest.mark.parametrize("subject, words", DOUBTED.values(), ids=DOUBTED)
def test_what_samples_leave_out_is_doubted(subject, words):
    assert words in doubts(subject, eager=EAGER, floor_ms=0)


@pytest.mark.parametrize("subject", BELIEVED.values(), ids=BELIEVED)
def test_what_a_busy_machine_does_is_believed(subject):
    assert not doubts(subject, eager=EAGER, floor_ms=0)


@pytest.fixture
def doubted(monkeypatch):
    """A subject that claimed 10 ns and is doubted, and PyTorch, which takes 20 ns; nothing is doubted later."""
    reasons = iter(["getting ready takes long"])
    monkeypatch.setattr("kgen.evaluator.timing.measure.doubts", lambda *_, **__: next(reasons, ""))
    monkeypatch.setattr("kgen.evaluator.timing.measure.audit", lambda worker: None)
    subject, eager = runner(claim=lambda: 11, cuda=True), runner("eager", claim=lambda: 20, cuda=True)
    subject.bursts, eager.bursts = [(1e-5,)], [(2e-5,)]
    return subject, eager


def test_who_is_believed_when_heard_keeps_those_samples_alone(doubted):
    subject, eager = doubted
    believe(subject, eager=EAGER, floor_ms=0.0, beside=eager, generator=random.Random(0))
    assert {sample for burst in subject.bursts for sample in burst} == {1.1e-5}


def test_who_takes_far_longer_when_heard_than_it_claimed_is_suspicious(doubted):
    subject, eager = doubted
    subject.worker.claim = lambda: 21
    with pytest.raises(Failure, match="before it was doubted"):
        believe(subject, eager=EAGER, floor_ms=0.0, beside=eager, generator=random.Random(0))


def test_threads_that_wake_slowly_when_heard_on_a_cpu_are_believed(doubted):
    subject, eager = doubted
    subject.worker.claim, subject.cuda = lambda: 21, False
    believe(subject, eager=EAGER, floor_ms=0.0, beside=eager, generator=random.Random(0))


def test_who_takes_longer_when_heard_as_pytorch_does_is_believed(doubted):
    subject, eager = doubted
    subject.worker.claim, eager.worker.claim = lambda: 21, lambda: 30
    believe(subject, eager=EAGER, floor_ms=0.0, beside=eager, generator=random.Random(0))


def test_pytorch_whose_samples_are_gone_is_timed_before_who_is_heard_beside_it(doubted):
    subject, eager = doubted
    eager.bursts = []
    believe(subject, eager=EAGER, floor_ms=0.0, beside=eager, generator=random.Random(0))
    assert eager.bursts


def test_who_fails_when_heard_leaves_pytorch_its_samples(doubted):
    subject, eager = doubted
    subject.worker.claim = lambda: None
    with pytest.raises(Failure):
        believe(subject, eager=EAGER, floor_ms=0.0, beside=eager, generator=random.Random(0))
    assert eager.bursts


class Launching(Worker):
    """A worker whose calls take ten milliseconds outside their samples for launches, but for those that go on while work
    is queued."""

    def go(self, **request):
        return super().go(**request)[0], 10_000_000 + max(0, request["sleep_ns"] - 4_000_000), 1000


@pytest.mark.parametrize("mine, pytorchs", [(200_000, 4_000_000), (4_000_000, 200_000)])
def test_who_is_heard_has_as_much_queued_in_front_of_its_samples_as_pytorch(monkeypatch, mine, pytorchs):
    monkeypatch.setattr("kgen.evaluator.timing.measure.audit", lambda worker: None)
    subject, eager = runner(cuda=True), runner("eager", cuda=True)
    for one, queued in ((subject, mine), (eager, pytorchs)):
        one.worker, one.sleep_ns = Launching(), queued
        one.burst(4, random.Random(0))
    assert bool(doubts(subject, eager=eager.habits(), floor_ms=0)) is (mine < pytorchs)
    believe(subject, eager=replace(EAGER, outside=0.0), floor_ms=0.0, beside=eager, generator=random.Random(0))
    assert subject.sleep_ns == eager.sleep_ns == 4_000_000


def test_finals_that_are_timed_once_more_have_as_much_queued_in_front_of_all():
    subjects = [runner(name, cuda=True) for name in "ab"]
    subjects[1].sleep_ns = 300_000
    kept = finals(subjects, 0.0, random.Random(0), lambda *_: None, lambda runners: True)
    assert [one.sleep_ns for one in kept] == [300_000, 300_000]


def test_what_the_watch_takes_is_no_candidates(doubted):
    subject, _ = doubted
    subject.call(random.Random(0), "event", watched=True)
    assert not subject.arms
    subject.call(random.Random(0), "event")
    assert len(subject.arms) == 1


def test_conditions_of_a_session_are_the_worse_of_both_its_ends():
    before = (("cache", "cold"), ("sm_clock_mhz", 1980.0), ("temperature_c", 40.0), ("throttle", "none"))
    after = (("cache", "cold"), ("sm_clock_mhz", 1500.0), ("temperature_c", 60.0), ("throttle", "power cap"))
    assert dict(worse(before, after)) == {
        "cache": "cold", "sm_clock_mhz": 1500.0, "temperature_c": 60.0, "throttle": "power cap"}
