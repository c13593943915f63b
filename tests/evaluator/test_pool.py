"""One evaluator for each device: started at once, alike, ended together."""

from __future__ import annotations

import threading
import time
from typing import Callable

import pytest
from judges import CheapJudge
from samples import candidate, problem

from kgen.candidate import Candidate
from kgen.errors import DeviceError, EvaluatorError
from kgen.evaluator.pool import DeviceEvaluator, DeviceLost, DevicePool
from kgen.protocol import Accuracy, BuildReport, Evaluation, Status

CANDIDATE, BUILD = candidate(), BuildReport(True, False, 0.0, False, "", None, "", "")


def test_evaluators_start_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=10)

    class DeviceEvaluator(CheapJudge):
        def start(self) -> None:
            both.wait()

    with DevicePool([DeviceEvaluator(problem(), "cuda:0"), DeviceEvaluator(problem(), "cuda:1")]) as devices:
        devices.wait()
        assert devices.at_once == 2


def test_unlike_devices_are_refused_in_one_line_and_ended() -> None:
    judges = [CheapJudge(problem(), "cuda:0", "NVIDIA H200"), CheapJudge(problem(), "cuda:1", "NVIDIA H100")]
    with pytest.raises(DeviceError) as refused, DevicePool(judges) as devices:
        devices.wait()
    assert str(refused.value) == (
        "cuda:0 is NVIDIA H200, avx2; cuda:1 is NVIDIA H100, avx2: results of different devices are never compared; "
        "sweep on each of them alone"
    )
    assert all(judge.closed.is_set() for judge in judges)


def test_failure_to_start_is_raised_and_all_are_ended() -> None:
    judges = [CheapJudge(problem(), "cuda:0"), CheapJudge(problem(), "cuda:1", fails=DeviceError("not there"))]
    with pytest.raises(DeviceError, match="not there"), DevicePool(judges) as devices:
        devices.wait()
    assert all(judge.closed.is_set() for judge in judges)


def test_leaving_ends_evaluators_that_still_start() -> None:
    class Slow(CheapJudge):
        def start(self) -> None:
            if self.closed.wait(10):
                raise EvaluatorError("closed")

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), DevicePool([Slow(problem())]):
        raise KeyboardInterrupt
    assert time.monotonic() - started < 5


def test_who_has_the_lowest_place_is_judged_first_and_who_gave_up_is_not() -> None:
    busy, order = threading.Event(), []

    def judged(name: str) -> Callable[[DeviceEvaluator], Evaluation]:
        def judge(judge: DeviceEvaluator) -> Evaluation:
            order.append(name)
            return Evaluation("a", Status.OK, "", Accuracy.FP32)

        return judge

    def first(judge: DeviceEvaluator) -> Evaluation:
        busy.wait(10)
        return judged("first")(judge)

    with DevicePool([CheapJudge(problem())]) as devices:
        devices.wait()
        futures = [devices.submit(first, 7)]
        while not futures[0].running():
            time.sleep(0.001)
        futures += [devices.submit(judged(name), place) for name, place in (("c", 5), ("gave up", 2), ("a", 1), ("b", 1))]
        assert futures[2].cancel()
        busy.set()
        for number in (0, 1, 3, 4):
            futures[number].result(10)
    assert order == ["first", "a", "b", "c"]


class Mortal(CheapJudge):
    """Is lost with its first candidate; ``starts`` counts how often it was started."""

    starts = 0

    def start(self) -> None:
        super().start()
        self.starts += 1

    def evaluate(self, candidate: Candidate, build: BuildReport) -> Evaluation:
        if self.starts == 1:
            raise DeviceLost("its node is gone")
        return super().evaluate(candidate, build)


def test_lost_device_is_started_again_and_works_on() -> None:
    judge = Mortal(problem())
    with DevicePool([judge]) as devices:
        devices.wait()
        with pytest.raises(DeviceLost):
            devices.submit(lambda device: device.evaluate(CANDIDATE, BUILD)).result(10)
        assert devices.submit(lambda device: device.evaluate(CANDIDATE, BUILD)).result(10).device == "cuda:0"
    assert judge.starts == 2


def test_work_on_the_first_device_goes_to_another_one_where_it_is_lost() -> None:
    with DevicePool([Mortal(problem(), "cuda:0"), CheapJudge(problem(), "cuda:1")]) as devices:
        devices.wait()
        assert devices.on_first(lambda device: device.evaluate(CANDIDATE, BUILD)).candidate == CANDIDATE.id


def test_leaving_a_pool_whose_devices_are_lost_takes_no_time() -> None:
    class Gone(Mortal):
        def start(self) -> None:
            if self.starts and self.closed.wait(10):
                raise EvaluatorError("closed")
            super().start()

    started = time.monotonic()
    with DevicePool([Gone(problem())]) as devices:
        devices.wait()
        futures = [devices.submit(lambda device: device.evaluate(CANDIDATE, BUILD)) for _ in range(2)]
        with pytest.raises(DeviceLost):
            futures[0].result(10)
    assert time.monotonic() - started < 5


def test_elastic_pool_begins_with_the_first_device_and_names_those_that_do_not_start() -> None:
    notices: list[str] = []
    judges = [CheapJudge(problem(), "a", fails=DeviceError("not there")), CheapJudge(problem(), "b")]
    with DevicePool(judges, elastic=True, notice=notices.append) as devices:
        devices.wait()
        assert devices.first.device == "b"
        while not notices:
            time.sleep(0.01)
    assert notices == ["a is left out: not there"]


def test_elastic_pool_without_any_device_raises_why() -> None:
    judges = [CheapJudge(problem(), name, fails=DeviceError(f"{name} is not there")) for name in "ab"]
    with pytest.raises(DeviceError, match="a is not there"), DevicePool(judges, elastic=True) as devices:
        devices.wait()


def test_device_that_judges_nothing_goes_before_one_that_judges_something() -> None:
    judges = [CheapJudge(problem(), f"cuda:{number}") for number in range(3)]
    for judge in judges:
        judge.at_once = 2
    all_begun = threading.Barrier(3, timeout=10)
    with DevicePool(judges) as devices:
        devices.wait()
        futures = [devices.submit(lambda judge: (all_begun.wait(), judge.evaluate(CANDIDATE, BUILD))[1]) for _ in judges]
        assert {future.result(10).device for future in futures} == {"cuda:0", "cuda:1", "cuda:2"}
