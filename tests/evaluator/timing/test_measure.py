"""Sample blocks: how long they are, what is checked, and what is measured again."""

import itertools
import random

import pytest

from kgen.devices.kinds import HOST, KINDS
from kgen.evaluator.correctness.validate import Failure
from kgen.evaluator.timing.conditions import worse
from kgen.evaluator.timing.measure import (
    FEWEST_BLOCKS,
    LEAST_BLOCKS,
    Runner,
    calls_of_finals,
    calls_per_block,
    enough,
    interleave,
)
from kgen.protocol import Depth, Status


class Worker:
    """A worker that claims ``claim()`` nanoseconds for each call."""

    def __init__(self, claim=lambda: 1):
        self.claim = claim
        self.requests = []
        self.exposed = False

    def ask(self, do, fds=(), **request):
        self.requests.append((do, request))
        if do == "block":
            return {"ns": [self.claim() for _ in request["keys"]], "exposed": self.exposed}
        return {}


def runner(name="a", claim=lambda: 1, cuda=False, modes=("eval",)):
    return Runner(name, Worker(claim), KINDS["cuda"] if cuda else HOST, modes, 1.0, 1.0)


@pytest.mark.parametrize("claim", [10**15, 0, -5, "1", None, 1.5])
def test_a_claim_above_the_parents_clock_is_suspicious(claim):
    with pytest.raises(Failure) as caught:
        runner(claim=lambda: claim).block(2, random.Random(0))
    assert caught.value.status is Status.SUSPICIOUS


def test_blocks_fill_their_time_within_bounds():
    assert [calls_per_block(ms, HOST) for ms in (0.0, 0.001, 5.0, 150.0, 500.0)] == [10, 10, 6, 2, 1]
    assert [calls_per_block(ms, KINDS["cuda"]) for ms in (0.0, 0.8, 5.0, 150.0, 500.0)] == [4, 4, 3, 2, 1]


def keys(subject):
    return [key for do, request in subject.worker.requests if do == "block" for key in request["keys"]]


def test_a_screening_has_its_blocks_and_fresh_keys():
    subject = runner()
    subject.screen(random.Random(0))
    timing = subject.timing(Depth.SCREEN, "s")
    assert [len(block) for block in timing.blocks] == [10] * 5 and timing.prepare_ms == 1.0
    assert len(set(keys(subject))) == len(keys(subject)) == 50


def test_a_screening_checks_the_output_of_a_drawn_block_and_of_the_last_one():
    drawn = set()
    for seed in range(20):
        subject, checked = runner(), []
        subject.check = lambda reply, mode, key: checked.append(len(subject.blocks))
        subject.screen(random.Random(seed))
        assert checked[-1] == 4 and len(checked) <= 2
        drawn |= set(checked)
    assert drawn == set(range(5))


def test_the_checked_call_is_the_last_of_its_block():
    subject = runner(modes=("train", "eval"), claim=lambda: 5)
    seen = []
    subject.check = lambda reply, mode, key: seen.append((mode, key))
    subject.block(3, random.Random(0), checked=True)
    assert [mode for mode, _ in seen] == ["train", "eval"] and {key for _, key in seen} == {keys(subject)[-1]}
    assert subject.blocks == [(5e-6, 5e-6, 1e-5)]


def test_an_odd_block_is_measured_again_once():
    claims = iter([10] * 20 + [40] * 10 + [10] * 30)
    subject = runner(claim=lambda: next(claims))
    subject.screen(random.Random(0))
    assert len(keys(subject)) == 60 and subject.noise() == ""
    assert {sample for block in subject.blocks for sample in block} == {1e-5}


def test_a_block_that_stays_odd_is_labelled_noisy():
    claims = iter([10] * 20 + [40] * 10 + [10] * 20 + [50] * 10)
    subject = runner(claim=lambda: next(claims))
    subject.screen(random.Random(0))
    assert len(keys(subject)) == 60 and subject.noise().startswith("noisy: a sample block took 5e-05 ms")


def test_work_queued_in_front_of_samples_doubles_three_times_at_most():
    subject = runner(cuda=True)
    subject.sleep_ns, subject.worker.exposed = 100, True
    for _ in range(9):
        subject.block(1, random.Random(0))
    assert subject.sleep_ns == 800


def test_finals_go_through_each_order_both_ways():
    calls = []
    subjects = [runner(name, claim=lambda name=name: calls.append(name) or 1) for name in "abc"]
    kept = interleave(subjects, 9.0, random.Random(0), lambda *_: None)
    assert kept == subjects
    rounds = calls[len(subjects) :]  # after one call of each, which tells how long they take
    turns = [name for name, _ in itertools.groupby(rounds[: 2 * len(rounds) // LEAST_BLOCKS])]
    assert turns == turns[::-1] and set(turns) == set("abc")


@pytest.mark.parametrize(("spread", "narrow"), [(0.001, True), (0.1, False)])
def test_finals_end_early_once_their_ratios_are_known_narrowly(spread, narrow):
    subjects = [runner("a"), runner("b")]
    for number in range(LEAST_BLOCKS):
        for place, subject in enumerate(subjects):
            subject.blocks.append((1.0 + spread * ((number + place) % 2),))
    assert enough(LEAST_BLOCKS, LEAST_BLOCKS, 1.0, 5.0, subjects) is narrow


def test_finals_whose_time_is_up_have_fewer_rounds():
    subjects = [runner("a"), runner("b")]
    interleave(subjects, 0.0, random.Random(0), lambda *_: None)
    assert all(len(s.blocks) == LEAST_BLOCKS for s in subjects)


def test_finals_of_a_sweep_whose_time_is_up_end_with_an_interval_still():
    subjects = [runner("a"), runner("b")]
    interleave(subjects, 9.0, random.Random(0), lambda *_: None, until=0.0)
    assert all(len(s.blocks) == FEWEST_BLOCKS for s in subjects)


def test_a_long_call_of_finals_has_no_other_one_before_it():
    subjects = [Runner(name, Worker(), HOST, ("eval",), 0.0, 300.0) for name in "ab"]
    interleave(subjects, 0.0, random.Random(0), lambda *_: None)
    assert all(len(keys(s)) == 1 + LEAST_BLOCKS for s in subjects)  # one before all, which tells how long they take


@pytest.mark.parametrize(("seconds", "lap", "calls"), [(20.0, 0.05, 19), (20.0, 1.0, 1), (20.0, 1e-9, 20)])
def test_finals_fill_their_time(seconds, lap, calls):
    assert calls_of_finals(seconds, lap) == calls


def test_a_finalist_that_fails_is_reported_and_the_others_go_on():
    lost = []
    subjects = [runner("good"), runner("bad", claim=lambda: None)]
    kept = interleave(subjects, 0.0, random.Random(0), lambda subject, failure: lost.append(subject.name))
    assert [s.name for s in kept] == ["good"] and lost == ["bad"]


def test_conditions_of_a_session_are_the_worse_of_both_its_ends():
    before = (("cache", "cold"), ("sm_clock_mhz", 1980.0), ("temperature_c", 40.0), ("throttle", "none"))
    after = (("cache", "cold"), ("sm_clock_mhz", 1500.0), ("temperature_c", 60.0), ("throttle", "power cap"))
    assert dict(worse(before, after)) == {
        "cache": "cold", "sm_clock_mhz": 1500.0, "temperature_c": 60.0, "throttle": "power cap"}
