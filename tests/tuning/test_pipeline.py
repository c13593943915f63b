"""Candidates in flight: built ahead, each fingerprint judged once, on the device that is free."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue

import pytest
from judges import CheapBuilder, CheapJudge, number_of
from samples import evaluation, problem

from kgen.candidate import Candidate
from kgen.errors import DiskError, EvaluatorError
from kgen.evaluator.pool import DeviceLost, DevicePool
from kgen.protocol import BuildReport, Evaluation, Status
from kgen.tuning.pipeline import Outcome, Pipeline, original


def candidate(text: str) -> Candidate:
    return Candidate(text, "inner_reduction[gelu]", {}, "cuda", 1)


def some(count: int, right: bool = True) -> list[Candidate]:
    """Candidates that :class:`CheapJudge` finds right, or wrong."""
    every = (candidate(f"x = {number}") for number in range(20 * count))
    return [c for c in every if (number_of(c.id, 8) != 0) == right][:count]


@contextmanager
def pipeline(*judges: CheapJudge, builder: CheapBuilder | None = None, jobs: int = 2) -> Iterator[Pipeline]:
    with DevicePool(judges) as devices:
        devices.wait()
        line = Pipeline(builder or CheapBuilder(), devices, jobs)
        yield line
        line.close()


def judge(device: str = "cuda:0", seconds: Callable[[Candidate], float] = lambda candidate: 0.0) -> CheapJudge:
    return CheapJudge(problem(), device, seconds=seconds)


def outcomes(line: Pipeline) -> list[Outcome]:
    return list(iter(line.next, None))


def test_each_candidate_comes_to_one_outcome() -> None:
    candidates = some(20)
    with pipeline(judge()) as line:
        for one in candidates:
            line.put(one)
        assert {v.candidate.id for v in outcomes(line)} == {c.id for c in candidates}
        assert line.next() is None


def test_candidate_that_is_built_first_is_judged_first() -> None:
    slow, fast = some(2)
    builds = {slow.source: threading.Event(), fast.source: threading.Event()}
    builds[fast.source].set()

    class Builder(CheapBuilder):
        def build(self, source: str, behind: int = 0) -> BuildReport:
            assert builds[source].wait(10)
            return super().build(source)

    with pipeline(judge(), builder=Builder()) as line:
        line.put(slow)
        line.put(fast)
        first = line.next()
        builds[slow.source].set()
        assert first is not None and first.candidate is fast
        assert [v.candidate for v in outcomes(line)] == [slow]


@pytest.mark.parametrize("built", [True, False], ids=["built", "does not build"])
def test_control_waits_for_the_first_other_candidate_where_that_is_to_come_first(built: bool) -> None:
    """A control has nothing to build: it would keep the device from the first candidate that is."""
    other, control = some(2)[0], replace(some(2)[1], control=True)
    go_on = threading.Event()

    class Builder(CheapBuilder):
        def build(self, source: str, behind: int = 0) -> BuildReport:
            assert source == control.source or go_on.wait(10)
            return replace(super().build(source), ok=source == control.source or built)

    watched = judge()
    with DevicePool([watched]) as devices:
        devices.wait()
        line = Pipeline(Builder(), devices, 2, own_first=True)
        for one in (control, other):
            line.put(one)
        assert line.next(time.monotonic() + 0.1) is None and not watched.evaluated
        go_on.set()
        assert [v.candidate for v in outcomes(line)] == [other, control]
        line.close()


def test_control_alone_waits_for_nobody() -> None:
    control = replace(some(1)[0], control=True)
    with DevicePool([judge()]) as devices:
        devices.wait()
        line = Pipeline(CheapBuilder(), devices, 1, own_first=True)
        line.put(control)
        assert [v.candidate for v in outcomes(line)] == [control]
        line.close()


def test_devices_judge_at_the_same_time_and_the_outcome_says_which_did() -> None:
    both = threading.Barrier(2, timeout=10)

    def meet(candidate: Candidate) -> float:
        both.wait()
        return 0.0

    with pipeline(judge("cuda:0", meet), judge("cuda:1", meet)) as line:
        for one in some(2):
            line.put(one)
        found = outcomes(line)
    assert {v.device for v in found} == {"cuda:0", "cuda:1"}
    assert all(v.baselines[0].subject == "eager" for v in found)


def test_one_device_judges_as_many_at_once_as_it_says() -> None:
    both = threading.Barrier(2, timeout=10)

    def meet(candidate: Candidate) -> float:
        both.wait()
        return 0.0

    wide = judge(seconds=meet)
    wide.at_once = 2
    with pipeline(wide) as line:
        for one in some(2):
            line.put(one)
        assert len(outcomes(line)) == 2


# Candidates that compile to the same ----------------------------------------------------------------------------


def alike(count: int, right: bool = True) -> list[Candidate]:
    """Candidates that differ in their kernels' text, and compile to the same."""
    every = (candidate(f"CPP_SOURCE = 'int x; // {number}'") for number in range(100 * count))
    return [c for c in every if (number_of(c.id, 8) != 0) == right][:count]


ONE_BINARY = CheapBuilder(binary=lambda source: "always the same")


def test_candidate_that_compiles_to_what_is_right_is_its_duplicate_and_not_judged() -> None:
    one, *others = alike(3)
    with pipeline(watched := judge(), builder=ONE_BINARY) as line:
        line.put(one)
        outcomes(line)
        for other in others:
            line.put(other)
        found = outcomes(line)
    assert watched.evaluated == [one.id]
    assert {v.evaluation.status for v in found} == {Status.DUPLICATE}
    assert found[0].evaluation.reason == f"the same machine code as {one.id[:12]}"
    assert original(found[0].evaluation) == one.id[:12]


def test_candidates_that_compile_to_the_same_wait_for_the_one_that_is_judged() -> None:
    judges = [judge("cuda:0", lambda candidate: 0.05), judge("cuda:1", lambda candidate: 0.05)]
    with pipeline(*judges, builder=ONE_BINARY) as line:
        for one in alike(4):
            line.put(one)
        found = outcomes(line)
    assert sorted(v.evaluation.status for v in found) == [Status.DUPLICATE] * 3 + [Status.OK]
    assert sum(len(j.evaluated) for j in judges) == 1


def test_candidate_that_compiles_to_what_is_wrong_is_judged_itself() -> None:
    wrong, right = alike(1, right=False)[0], alike(1)[0]
    with pipeline(judge(seconds=lambda candidate: 0.05), builder=ONE_BINARY, jobs=1) as line:
        line.put(wrong)
        line.put(right)
        found = {v.candidate.id: v.evaluation.status for v in outcomes(line)}
    assert found == {wrong.id: Status.WRONG_VALUES, right.id: Status.OK}


def test_candidates_with_other_statements_around_the_same_kernel_are_no_duplicates() -> None:
    with pipeline(watched := judge(), builder=ONE_BINARY) as line:
        for one in some(3):
            line.put(one)
        outcomes(line)
    assert len(watched.evaluated) == 3


# What is known, what is given up, what fails ---------------------------------------------------------------------


def known(of: Candidate, status: Status = Status.OK) -> Evaluation:
    return evaluation(of, status)


@pytest.mark.parametrize("status", [Status.OK, Status.WRONG_VALUES])
def test_known_evaluation_is_the_outcome_and_nothing_is_built_or_judged(status: Status) -> None:
    def refuse(source: str) -> str:
        raise AssertionError("built")

    (one,) = some(1)
    with pipeline(watched := judge(), builder=CheapBuilder(refuse)) as line:
        line.put(one, expected := known(one, status))
        [outcome] = outcomes(line)
    assert (outcome.evaluation, outcome.found) == (expected, True)
    assert watched.evaluated == []


def test_candidate_that_compiles_to_what_is_known_to_be_right_is_its_duplicate() -> None:
    one, other = alike(2)
    builder = CheapBuilder(binary=lambda source: "abc")  # as in the sample
    with pipeline(watched := judge(), builder=builder) as line:
        line.put(one, known(one))
        line.put(other)
        assert [v.evaluation.status for v in outcomes(line)] == [Status.OK, Status.DUPLICATE]
    assert watched.evaluated == []


def test_builds_come_behind_those_that_were_asked_for_before() -> None:
    begun, go_on = SimpleQueue[int](), threading.Event()

    class Builder(CheapBuilder):
        def build(self, source: str, behind: int = 0) -> BuildReport:
            begun.put(behind)
            assert go_on.wait(10)
            return super().build(source)

    with pipeline(judge(), builder=Builder(), jobs=3) as line:
        for one in some(3):
            line.put(one)
        assert sorted(begun.get(timeout=10) for _ in range(3)) == [0, 1, 2]
        go_on.set()
        assert len(outcomes(line)) == 3


def test_giving_up_drops_all_but_what_is_judged_by_then() -> None:
    first, begun = threading.Event(), threading.Event()

    def wait(candidate: Candidate) -> float:
        if first.is_set():
            begun.set()
        first.set()
        time.sleep(0.05)  # so that others are built, and handed on, while somebody waits for the first
        return 0.0

    with pipeline(watched := judge(seconds=wait), jobs=1) as line:
        for one in some(10):
            line.put(one)
        assert line.next() is not None
        assert begun.wait(10)
        line.give_up()
        line.put(candidate("late"))
        assert len(outcomes(line)) == 1
    assert len(watched.evaluated) == 2


def test_build_is_forgotten_with_its_candidate() -> None:
    """A library stays in the memory of a cluster as long as its build is known."""
    gc.disable()
    with pipeline(judge()) as line:
        built: list[weakref.ref[BuildReport]] = []
        line._on_built = lambda candidate, build: built.append(weakref.ref(build))
        for one in some(3):
            line.put(one)
        assert len(outcomes(line)) == 3
        del one
    gc.enable()
    assert [build() for build in built] == [None] * 3


@pytest.mark.parametrize("failure", [DiskError("full"), EvaluatorError("gone")])
def test_failure_that_is_no_candidates_fault_is_raised(failure: Exception) -> None:
    def fail(source: str) -> str:
        raise failure

    with pipeline(judge(), builder=CheapBuilder(fail)) as line:
        line.put(some(1)[0])
        with pytest.raises(type(failure)):
            line.next()


class Mortal(CheapJudge):
    """Is lost with so many candidates, and then judges."""

    losses = 1

    def evaluate(self, candidate: Candidate, build: BuildReport) -> Evaluation:
        if self.losses:
            self.losses -= 1
            raise DeviceLost("its node is gone")
        return super().evaluate(candidate, build)


def test_candidate_whose_device_is_lost_is_judged_by_another_one() -> None:
    candidates = some(4)
    with pipeline(Mortal(problem()), judge("cuda:1")) as line:
        for one in candidates:
            line.put(one)
        assert [outcome.evaluation.status for outcome in outcomes(line)] == [Status.OK] * 4


def test_candidate_that_loses_each_device_ends_as_an_error_of_the_evaluator() -> None:
    mortal = Mortal(problem())
    mortal.losses = 5
    with pipeline(mortal) as line:
        line.put(some(1)[0])
        [outcome] = outcomes(line)
    assert outcome.evaluation.status is Status.INFRA_ERROR
    assert outcome.evaluation.reason == "5 devices were lost while they judged it: its node is gone"
