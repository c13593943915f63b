"""One evaluator for each device: started at once, alike, ended together."""

from __future__ import annotations

import threading
import time
from typing import Callable

import pytest
from judges import CheapJudge
from samples import problem

from kgen.errors import DeviceError, EvaluatorError
from kgen.evaluator.pool import DevicePool, DeviceEvaluator
from kgen.evaluator.protocol import Accuracy, Evaluation, Status


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
