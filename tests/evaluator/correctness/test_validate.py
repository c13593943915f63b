"""In which order test cases run and are judged."""

import math
import os
import threading

import pytest
from candidates import plain

from kgen.evaluator import judging as module
from kgen.evaluator.correctness.validate import Failure, OracleClient, Validation, check_structure
from kgen.protocol import Phase, Status

BYTES = 1024  #: of one test case's output
OUTPUT = {"kind": "tuple", "items": [
    {"kind": "tensor", "dtype": "float32", "device": "cpu", "size": [256], "stride": [1], "offset": 0},
    {"kind": "dict", "keys": [], "items": []},
]}
CASES = [(name, "eval") for name in "abcd"]
SECONDS = 20


class Oracle(OracleClient):
    """An oracle that takes every output for right but those of ``wrong``."""

    def __init__(self, wrong=(), random=False):
        super().__init__(None, 1.0)
        self.wrong = wrong
        self.random = random
        self.judged = []  # (test case, byte)
        self.before_judging = lambda case: None

    def ask(self, do, fds=(), **request):
        case = request["case"]
        if do == "inputs":
            return {"note": "", "raises": False, "change": "drawn", "rng": 0, "random": self.random,
                    "inputs": {}, "bytes": 0, "outputs": OUTPUT, "end": BYTES}, [os.open(os.devnull, os.O_RDONLY)]
        self.before_judging(case)
        self.judged.append((case, request["shift"]))
        ok = case not in self.wrong
        return {"rows": [{"output": "output", "rms": 1.0, "maximum": 1.0, "eager_rms": 1.0, "eager_maximum": 1.0,
                          "ratio": 1.0, "used": 0.5 if ok else 2.0, "ok": ok, "note": ""}], "same_numbers": False}, []


class Worker:
    """A worker whose runs are all alike; of those in ``fails``, a number, comes a crash, and of those in ``differs`` two
    results."""

    subject, phase, output_bytes = "subject", Phase.VALIDATE, 4 * BYTES

    def __init__(self, fails=(), differs=()):
        self.fails = fails
        self.differs = differs
        self.runs = []  # the byte that each begins to write at
        self.wrote_second = 0
        self.after_running = lambda number: None

    def ask(self, do, fds=(), **request):
        if do == "write_second":
            self.wrote_second += 1
            return {}
        number = len(self.runs)
        self.runs.append(request["place"])
        self.after_running(number)
        if number in self.fails:
            raise Failure(Status.CRASHED, "it crashed", Phase.VALIDATE)
        return {"first": OUTPUT, "second": OUTPUT, "repeatable": number not in self.differs}


def run(worker, oracle, room):
    """Rows and labels."""
    found, labels = [], []
    try:
        Validation(worker, oracle, "drawn", found, labels, room).run(CASES)
    finally:
        oracle.close()
    return found, labels


def test_a_test_case_is_judged_while_the_next_one_runs():
    worker, oracle, runs = Worker(), Oracle(), threading.Event()
    worker.after_running = lambda number: number == 1 and runs.set()
    waited = []
    oracle.before_judging = lambda case: waited.append(runs.wait(SECONDS)) if case == "a" else None
    found, _ = run(worker, oracle, 2 * BYTES)
    assert waited == [True]
    assert [row.case for row in found] == ["a", "b", "c", "d"]


def test_cases_beside_each_other_write_to_different_halves():
    worker, oracle = Worker(differs=[2]), Oracle()
    found, labels = run(worker, oracle, 2 * BYTES)
    assert worker.runs == [2 * BYTES, 0, 2 * BYTES, 0]
    assert oracle.judged == [("a", 2 * BYTES), ("b", 0), ("c", 2 * BYTES), ("c", 3 * BYTES), ("d", 0)]
    assert (len(found), labels) == (4, ["not bitwise repeatable"])


def test_a_second_run_takes_the_place_of_the_first_where_memory_holds_one():
    worker, oracle = Worker(differs=[2]), Oracle()
    worker.output_bytes = BYTES
    run(worker, oracle, BYTES // 2)
    assert oracle.judged == [("a", 0), ("b", 0), ("c", 0), ("c", 0), ("d", 0)] and worker.wrote_second == 1


def test_second_runs_with_numbers_of_their_own_take_the_place_of_the_first_ones_too():
    worker, oracle = Worker(differs=range(100)), Oracle(wrong="a", random=True)
    worker.output_bytes = BYTES
    with pytest.raises(Failure):
        run(worker, oracle, 0)
    moments = [shift for case, shift in oracle.judged if case == "other weights"]
    assert moments == [0] * 16 and worker.wrote_second == 8


@pytest.mark.parametrize("room, random", [(0, False), (2 * BYTES - 256, False), (2 * BYTES, True)],
                         ids=["no room", "too little room", "a model that is random"])
def test_else_a_test_case_is_judged_before_the_next_one_runs(room, random):
    worker, oracle = Worker(), Oracle(random=random)
    order = []
    worker.after_running = lambda number: order.append(f"run {'abcd'[number]}")
    oracle.before_judging = lambda case: order.append(f"judge {case}")
    run(worker, oracle, room)
    assert order == [f"{what} {case}" for case in "abcd" for what in ("run", "judge")]


@pytest.mark.parametrize("wrong, fails, status, case, judged", [
    ("b", [2], Status.WRONG_VALUES, "b", "ab"), ("c", [], Status.WRONG_VALUES, "c", "abc"),
    ("", [2], Status.CRASHED, "it crashed", "ab"), ("d", [], Status.WRONG_VALUES, "d", "abcd"),
])
def test_what_is_wrong_first_is_the_verdict(wrong, fails, status, case, judged):
    oracle = Oracle(wrong)
    with pytest.raises(Failure) as caught:
        run(Worker(fails), oracle, 2 * BYTES)
    assert (caught.value.status, caught.value.reason.split(":")[0]) == (status, case)
    assert "".join(case for case, _ in oracle.judged) == judged


@pytest.mark.parametrize("size, expected, got, same", [
    ([4, 3], [3, 1], [3, 1], True), ([4, 3], [3, 1], [1, 4], False), ([4, 3], [1, 4], [3, 1], False), ([4, 3], [1, 4], [1, 4], True),
    ([4, 1], [1, 1], [1, 4], True), ([1, 3], [3, 1], [77, 1], True), ([4, 3], [3, 1], [8, 2], False),
    ([4, 3], [8, 1], [3, 1], True), ([4, 3], [1, 8], [1, 4], True), ([4, 3], [1, 8], [3, 1], False), ([4, 3], [8, 1], [8, 1], True),
    ([4, 3], [0, 1], [3, 1], True), ([0, 3], [3, 1], [1, 1], True), ([], [], [], True),
])
def test_an_output_lies_in_memory_as_that_of_pytorch(monkeypatch, size, expected, got, same):
    def node(stride):
        tensor = {"kind": "tensor", "dtype": "float32", "device": "cpu", "size": size, "stride": stride, "offset": 0}
        return {"kind": "tuple", "items": [{"kind": "list", "items": [tensor]}, {"kind": "dict", "keys": [], "items": []}]}

    monkeypatch.setitem(globals(), "OUTPUT", node(expected))
    worker = Worker()
    worker.ask = lambda *given, **more: {"first": node(got), "second": node(got), "repeatable": True}
    if same:
        run(worker, Oracle(), 0)
        return
    with pytest.raises(Failure, match=r"output\[0\] has strides .* not") as caught:
        run(worker, Oracle(), 0)
    assert caught.value.status is Status.WRONG_SHAPE


@pytest.mark.parametrize("expected, got, same", [
    (0.25, 0.25 + 2**-24, True), (0.25, 0.25 + 2**-20, False), (0.0, 1e-30, False), (7, 8, False), ("a", "b", False),
    (float("nan"), float("nan"), True), (float("nan"), 0.5, False), (0.5, float("nan"), False),
    (float("inf"), float("inf"), True), (float("inf"), 1.0, False), (1.0, float("inf"), False), (None, None, True),
])
def test_python_numbers_in_an_output_are_the_same_but_for_their_last_bits(expected, got, same):
    def node(value):
        return {"kind": "tuple", "items": [{"kind": "value", "value": value}, {"kind": "dict", "keys": [], "items": []}]}

    if same:
        check_structure(node(expected), node(got), "as given", Phase.VALIDATE)
        return
    with pytest.raises(Failure) as caught:
        check_structure(node(expected), node(got), "as given", Phase.VALIDATE)
    assert caught.value.status is Status.WRONG_VALUES


@pytest.mark.parametrize("size, stride, refused", [
    ([4, 3], [3, 1], False), ([4, 3], [1, 4], False), ([4, 3], [8, 2], False), ([4, 3], [0, 1], True), ([4, 3], [1, 1], True),
    ([1, 3], [0, 1], False), ([0, 3], [0, 0], False), ([], [], False),
])
def test_elements_of_an_output_share_no_memory_unless_those_of_pytorch_do(size, stride, refused):
    def node(stride):
        tensor = {"kind": "tensor", "dtype": "float32", "device": "cpu", "size": size, "stride": stride, "offset": 0}
        return {"kind": "tuple", "items": [tensor, {"kind": "dict", "keys": [], "items": []}]}

    check_structure(node(stride), node(stride), "as given", Phase.VALIDATE)
    dense = [math.prod(size[place + 1 :]) for place in range(len(size))]
    if not refused:
        check_structure(node(dense), node(stride), "as given", Phase.VALIDATE)
        return
    with pytest.raises(Failure) as caught:
        check_structure(node(dense), node(stride), "as given", Phase.VALIDATE)
    assert caught.value.status is Status.ALIASED_OUTPUT


@pytest.mark.parametrize("body, status, reason", [
    ("return y", Status.OK, ""),
    ("return y if x.shape[0] in (160, 64) else y * 2", Status.WRONG_VALUES, "batch"),
    ("if x.shape[0] == 63:\n    sys.exit(0)\nreturn y * 2 if x.shape[0] == 7 else y", Status.WRONG_VALUES, "batch 7"),
    ("if x.shape[0] == 63:\n    sys.exit(0)\nreturn y", Status.RUNTIME_ERROR, "batch 63"),
])
def test_verdicts_are_the_same_with_room(evaluator, judge, monkeypatch, body, status, reason):
    monkeypatch.setattr(module, "Validation", lambda *given: Validation(*given[:-2], evaluator.opened.output_bytes, given[-1]))
    evaluation = judge(plain(body))
    assert (evaluation.status, reason in evaluation.reason) == (status, True), evaluation.reason
