"""Timing of foreign candidates: which calls are checked and watched, and which times are anomalies."""

import random
import time
from types import SimpleNamespace

import pytest

from kgen.devices.kinds import KINDS
from kgen.evaluator.correctness.validate import Failure
from kgen.evaluator.strict import strict, timing_anomalies
from kgen.evaluator.strict.strict import SHORT_BLOCKS, SHORT_SECONDS, SLOWER_BLOCKS, Strict
from kgen.evaluator.strict.timing_anomalies import StrictRunner, anomaly, least_ms, measured_again
from kgen.evaluator.timing.measure import CHECK_SHARE, FINAL_BLOCKS
from kgen.protocol import Status


class Child:
    """The process of a worker that claims ``claim()`` nanoseconds for each call."""

    def __init__(self, worker):
        self.worker = worker
        self.family = None

    def ask(self, request, fds, *, deadline):
        self.worker.requests.append((request["do"], request))
        return {"id": request["id"]} | self.worker.run(request), []

    def answer(self, *, deadline):
        return {"id": self.worker.requests[-1][1]["id"]}, []


class Worker:
    def __init__(self, claim=lambda: 1):
        self.claim = claim
        self.requests = []
        self.child = Child(self)

    def ask(self, do, fds=(), **request):
        self.requests.append((do, request))
        return {}

    def answer(self, number, wait):
        reply, _ = wait(deadline=time.monotonic() + 9)
        assert reply.pop("id") == number
        return reply

    def run(self, request):
        return {"ns": self.claim()}


def runner(name="a", claim=lambda: 1, cuda=False, modes=("eval",)):
    return StrictRunner(name, Worker(claim), KINDS["cuda" if cuda else "cpu"], modes, 1.0, 1.0)


def timed(samples=(1.0,), modes=("eval",), **seen):
    """A runner with these samples in one block, and other times of its calls."""
    found = runner(modes=modes)
    found.blocks = [tuple(samples)]
    found.seen.update({"whole": [1.1], "sample": list(samples)} | seen)
    return found


def again(subject, eager):
    """The anomaly that stays of a suspected subject."""
    return measured_again(subject, "preparing takes long", beside=eager, generator=random.Random(0))


EAGER = {"hidden": [0.2], "unjoined": [0.1], "fetch": [2.0], "prepare": [4.0], "rest": [0.5], "behind": [0.002],
         "settle": [3.0]}


@pytest.fixture(autouse=True)
def audits(monkeypatch):
    monkeypatch.setattr(strict, "audit", lambda worker, settled: None)


@pytest.mark.parametrize("claim", [10**15, 0, -5, "1", None, 1.5])
def test_a_claim_above_the_parents_clock_is_suspicious(claim):
    with pytest.raises(Failure) as caught:
        runner(claim=lambda: claim).call(random.Random(0))
    assert caught.value.status is Status.SUSPICIOUS


@pytest.mark.parametrize("asked", ["prepare_call", "fetch"])
def test_an_output_that_changes_after_its_call_is_suspicious(asked):
    subject = runner()
    answer = subject.worker.ask
    subject.worker.ask = lambda do, **request: answer(do, **request) | {"late": do == asked}
    with pytest.raises(Failure, match="changed after forward returned"):
        subject.call(random.Random(0), checked=True)


def test_what_a_worker_is_told_before_a_call_does_not_say_whether_its_output_is_checked():
    def told(checked):
        subject = runner()
        subject.call(random.Random(0), checked=checked)
        return [(do, {k: v for k, v in request.items() if k != "id"}) for do, request in subject.worker.requests]

    assert told(True)[:2] == told(False) and told(True)[2][0] == "fetch"


def test_a_screening_checks_an_output_of_every_block_and_the_last():
    subject = runner()
    subject.screen(random.Random(0))
    done = [do for do, _ in subject.worker.requests]
    assert done.count("fetch") == 6 and done[-1] == "fetch"


def test_a_screening_on_a_gpu_checks_a_synchronised_call():
    def checked(seed):
        subject = runner(cuda=True)
        subject.screen(random.Random(seed))
        requests = [(do, request.get("how")) for do, request in subject.worker.requests]
        return [how for (_, how), (do, _) in zip(requests, requests[1:]) if do == "fetch"].count("sync")

    assert [checked(seed) for seed in range(20)] == [1] * 20


def test_a_device_that_is_done_later_than_the_stream_is_suspicious():
    assert "outside its stream" in anomaly(timed(behind=[0.002, 0.009, 0.009]), eager=EAGER)
    assert not anomaly(timed(behind=[0.002, 0.002, 0.003]), eager=EAGER)


def test_which_call_of_a_screening_is_watched_is_drawn():
    def watched(seed):
        subject = runner()
        subject.screen(random.Random(seed))
        arms = [request["watched"] for do, request in subject.worker.requests if do == "prepare_call"]
        assert sum(arms) == 1
        return arms.index(True)

    assert len(set(map(watched, range(20)))) > 10


def test_a_call_goes_through_every_mode():
    subject = runner(modes=("train", "eval"), claim=lambda: 5)
    assert subject.call(random.Random(0)) == 10 / 1e6
    assert [request["mode"] for do, request in subject.worker.requests if do == "prepare_call"] == ["train", "eval"]


def finals(finalists, baselines=(), seconds=SHORT_SECONDS):
    """Finals of these subjects; returns those that are kept, those that failed, and the notices."""
    failed, notices = [], []
    kept = Strict().finals(finalists, baselines, seconds, random.Random(0),
                           lambda one, failure: failed.append(one), notices.append)
    return kept, failed, notices


@pytest.mark.parametrize("reasons, lost", [(["", ""], False), (["odd", ""], False), (["odd", "odd", ""], False),
                                           (["odd", "odd", "odd"], True)])  # fmt: skip
def test_finals_with_an_anomaly_are_timed_again_and_keep_no_sample(monkeypatch, reasons, lost):
    answers = iter(reasons)
    monkeypatch.setattr("kgen.evaluator.strict.strict.anomaly", lambda *_, **__: next(answers))
    subject, eager = runner("a", cuda=True), runner("eager", cuda=True)
    eager.sleep_ns = 300_000
    kept, failed, notices = finals([subject], [eager])
    assert (kept, failed) == (([eager], [subject]) if lost else ([subject, eager], []))
    assert bool(notices) is bool(reasons[0]) and len(subject.blocks) == FINAL_BLOCKS
    assert subject.sleep_ns == (300_000 if reasons[0] else 0)  # as much work is queued in front of all


def test_a_short_timing_has_fewer_rounds_and_as_many_checks():
    subject, eager = runner("a"), runner("eager")
    kept, *_ = finals([subject], [eager], SHORT_SECONDS / 2)
    assert len(subject.blocks) == SHORT_BLOCKS and subject.check_share * SHORT_BLOCKS == CHECK_SHARE * FINAL_BLOCKS


@pytest.mark.parametrize(("ns", "rounds"), [(4, range(SLOWER_BLOCKS, SHORT_BLOCKS + 1)), (2, [SHORT_BLOCKS])])
def test_a_file_that_is_slower_by_far_is_timed_until_a_drawn_round_with_all_checks(ns, rounds):
    subject = runner("a", claim=lambda: ns)
    finals([subject], [runner("eager")], SHORT_SECONDS / 2)
    watched = [request["watched"] for do, request in subject.worker.requests if do == "prepare_call"]
    assert len(subject.blocks) in rounds and any(watched)


def test_faster_than_moving_the_data_is_an_anomaly():
    floor = least_ms(4_000_000_000, 1000.0, "cuda")
    assert floor == 1.0
    fast, slow = timed([0.5]), timed([1.5])
    fast.floor_ms = slow.floor_ms = floor
    assert "less than reading" in anomaly(fast, eager=EAGER)
    assert not anomaly(slow, eager=EAGER)


ANOMALIES = {
    "time outside the samples": (timed(whole=[1.9] * 4), "than the median sample"),
    "a tenth of a long call, hidden": (timed([36.0], whole=[40.2] * 4), "than the median sample"),
    "work that only a synchronisation shows": (timed(synced=[5.0]), "outside its stream"),
    "work done when the output is fetched": (timed(fetch=[9.0, 8.0]), "its output takes"),
    "work done before the call": (timed(prepare=[30.0, 13.0]), "preparing a call"),
    "work done before every call, of half its time": (timed(prepare=[9.0, 9.1]), "ms at least"),
    "work done when the time is told": (timed(rest=[5.0, 3.1, 3.2]), "the rest of an answer"),
    "work done before three calls of five": (timed(prepare=[5.0, 30.0, 30.0, 5.0, 30.0]), "preparing a call"),
    "time that three samples of five leave out": (timed([5.0, 0.1, 0.1, 5.0, 0.1], whole=[5.1] * 5), "median sample"),
    "work while nothing is asked, but for one time": (timed(settle=[21.0, 28.0, 5.0]), "nothing is asked"),
    "work while nothing is asked": (timed(settle=[21.0, 28.0]), "nothing is asked"),
}
NORMAL = {
    "two slow calls of five": timed(whole=[1.3, 9.0, 9.0, 1.3, 1.3]),
    "launches that a synchronised call has more": timed(synced=[4.0], launch=[3.0]),
    "launches in both modes": timed(synced=[4.0], launch=[1.5], modes=("train", "eval")),
    "a stream that ends with the device": timed(behind=[0.001]),
    "one slow fetch": timed(fetch=[9.0, 2.5]),
    "one slow start": timed(prepare=[30.0, 5.0, 6.0]),
    "threads that spin for some milliseconds": timed(settle=[6.0, 8.0]),
    "threads that came late to rest once": timed(settle=[28.0, 6.0, 5.0]),
    "whole calls that scatter as their samples do": timed([1.0, 1.0, 4.0], whole=[1.1, 1.1, 4.1]),
}


def test_a_stream_may_end_with_the_device_where_pytorchs_launches_show():
    eager = EAGER | {"behind": [-0.004]}  # less the time between the launches of two events
    assert not anomaly(timed(behind=[0.001]), eager=eager)
    assert "outside its stream" in anomaly(timed(behind=[0.01]), eager=eager)


@pytest.mark.parametrize("subject, words", ANOMALIES.values(), ids=ANOMALIES)
def test_time_outside_the_samples_is_an_anomaly(subject, words):
    assert words in anomaly(subject, eager=EAGER)


@pytest.mark.parametrize("subject", NORMAL.values(), ids=NORMAL)
def test_a_busy_machine_is_no_anomaly(subject):
    assert not anomaly(subject, eager=EAGER)


@pytest.fixture
def suspected(monkeypatch):
    """A subject that claimed 10 ns and is doubted, and PyTorch, which takes 20 ns; nothing is doubted later."""
    monkeypatch.setattr("kgen.evaluator.strict.timing_anomalies.anomaly", lambda *_, **__: "")
    subject, eager = runner(claim=lambda: 11, cuda=True), runner("eager", claim=lambda: 20, cuda=True)
    subject.blocks, eager.blocks = [(1e-5,)], [(2e-5,)]
    return subject, eager


def test_only_the_samples_of_the_last_measurement_are_kept(suspected):
    subject, eager = suspected
    again(subject, eager)
    assert {sample for burst in subject.blocks for sample in burst} == {1.1e-5}


def test_a_failure_when_measured_again_leaves_pytorch_its_samples(suspected):
    subject, eager = suspected
    subject.worker.claim = lambda: None
    with pytest.raises(Failure):
        again(subject, eager)
    assert eager.blocks


def test_each_time_a_doubt_is_measured_again_has_more_calls(suspected, monkeypatch):
    subject, eager = suspected
    reasons = iter(["slow", "slow", ""])
    monkeypatch.setattr(timing_anomalies, "anomaly", lambda runner, **_: lengths.append(len(runner.blocks[0])) or next(reasons))
    lengths = []
    again(subject, eager)
    assert lengths == [lengths[0] * times for times in (1, 2, 3)] and lengths[0] > timing_anomalies.MIN_CALLS


@pytest.fixture
def clock(monkeypatch):
    """A clock that only :class:`Launching` moves."""
    now = SimpleNamespace(ns=0)
    monkeypatch.setattr(timing_anomalies, "time", SimpleNamespace(perf_counter_ns=lambda: now.ns))
    return now


class Launching(Worker):
    """Calls take ten milliseconds outside their samples for launches, less what goes on while work is queued."""

    def __init__(self, clock):
        super().__init__()
        self.clock = clock

    def run(self, request):
        self.clock.ns += 10_000_000 + max(0, request["sleep_ns"] - 4_000_000)
        return super().run(request)


@pytest.mark.parametrize("mine, pytorchs", [(200_000, 4_000_000), (4_000_000, 200_000)])
def test_a_subject_is_measured_again_with_as_much_queued_work_as_pytorch(clock, mine, pytorchs):
    subject, eager = runner(cuda=True), runner("eager", cuda=True)
    for one, queued in ((subject, mine), (eager, pytorchs)):
        one.worker, one.sleep_ns = Launching(clock), queued
        one.block(4, random.Random(0))
    assert bool(anomaly(subject, eager=eager.times())) is (mine < pytorchs)
    again(subject, eager)
    assert subject.sleep_ns == eager.sleep_ns == 4_000_000
