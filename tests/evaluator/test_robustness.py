"""The evaluator's own processes fail: they are named, started again, and work with less where memory was the reason."""

import os
import signal
import threading
import time

import pytest
from candidates import plain
from lending import Lender

from kgen.candidate import Candidate, Trust
from kgen.errors import EvaluatorError, ProblemError
from kgen.evaluator.baselines import Baselines
from kgen.evaluator.correctness.validate import OracleClient, OracleFailed
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.judging import Judging
from kgen.evaluator.runtime import sandbox
from kgen.evaluator.runtime.channel import ChannelTimeout
from kgen.evaluator.runtime.process import ChildDied, describe
from kgen.protocol import TRIES, Accuracy, Status

SOURCE = plain("return y")


class Child:
    """A process whose answers are given, exceptions among them."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def ask(self, message, fds, *, deadline):
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, []


@pytest.mark.parametrize("answer, memory", [
    (ChildDied("ended"), False), (ChildDied("killed", for_memory=True), True), (ChannelTimeout("late"), False),
    ({"error": "OutOfMemoryError: no", "memory": True}, True), ({"error": "RuntimeError: no"}, False)])
def test_an_oracle_that_fails_names_its_test_case(answer, memory):
    with pytest.raises(OracleFailed, match="the reference failed in the test case 'zeros': ") as caught:
        OracleClient(Child(answer), 1.0).ask("inputs", case="zeros", mode="eval")
    assert (caught.value.case, caught.value.memory) == ("zeros", memory)


def test_an_answer_that_comes_late_is_never_taken_for_the_next_one():
    client = OracleClient(Child(ChannelTimeout("late"), {"hardware": {}}), 1.0)
    for _ in range(2):
        with pytest.raises(OracleFailed):
            client.ask("about")


def test_a_problem_that_is_wrong_stays_an_error_of_the_problem():
    with pytest.raises(ProblemError, match="p.py"):
        OracleClient(Child({"error": "p.py: no", "problem": True}), 1.0).ask("open")


def test_an_internal_error_is_not_told_as_an_exit_code():
    assert describe(70 << 8) == "ended with an error; see its log" and describe(3 << 8) == "left with exit code 3"


@pytest.fixture(scope="module")
def lender():
    lender = Lender()
    yield lender
    lender.close()


@pytest.fixture
def evaluator(tmp_path, problem, lender):
    """An evaluator of the test's own; all share a fork server, which no test hurts."""
    notices = []
    with lender.lend(Evaluator(problem, device="cpu", accuracy=Accuracy.PYTORCH, home=tmp_path, baselines=("eager",), cache="warm",
                               notice=notices.append, trust=Trust.OWN)) as running:
        running.notices = notices
        yield running


def judged(evaluator):
    return evaluator.evaluate(Candidate(SOURCE, "by hand", {}, "cpu"), evaluator.builder().build(SOURCE))


def test_a_test_case_that_fails_three_times_is_left_out(evaluator, monkeypatch):
    ask = OracleClient.ask

    def failing(self, do, fds=(), **request):
        if request.get("case") == "zeros":
            raise OracleFailed("its process ended", "zeros", False)
        return ask(self, do, fds, **request)

    monkeypatch.setattr(OracleClient, "ask", failing)
    evaluation = judged(evaluator)
    assert evaluation.status is Status.OK, evaluation.reason
    cases = {row.case for row in evaluation.errors}
    assert len(cases) == 11 and "zeros" not in cases
    assert evaluator.notices[-1] == "the test case 'zeros' is left out: it failed 3 times"


def test_a_reference_without_memory_is_tried_again_with_fewer_rows(evaluator, monkeypatch):
    ask, failures = OracleClient.ask, iter([OracleFailed("OutOfMemoryError: no", "as given", True)])

    def failing(self, do, fds=(), **request):
        ahead = threading.current_thread().name == "kgen-cases"  # its failures tell nobody
        if request.get("case") and not ahead and (failure := next(failures, None)):
            raise failure
        return ask(self, do, fds, **request)

    monkeypatch.setattr(OracleClient, "ask", failing)
    monkeypatch.setattr("kgen.evaluator.evaluator._FEWER_ROWS", 16)
    assert judged(evaluator).status is Status.OK
    known = evaluator.running()._cases
    sizes = {name: case.outputs["items"][0]["size"][0] for (name, _, _), case in known.items()}
    assert evaluator._rows == 8 and sizes["as given"] == 160 and sizes["all rows scaled"] == 8


def test_a_problem_whose_fewer_rows_end_the_device_is_judged_with_all_rows(tmp_path, problem, lender, monkeypatch):
    ask, failures = OracleClient.ask, iter([OracleFailed("fewer rows end the device's work", of_batch=True)])

    def failing(self, do, fds=(), **request):
        if do == "open" and (failure := next(failures, None)):
            raise failure
        return ask(self, do, fds, **request)

    monkeypatch.setattr(OracleClient, "ask", failing)
    notices = []
    with lender.lend(Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=tmp_path, baselines=("eager",), cache="warm",
                               trust=Trust.OWN, notice=notices.append)) as running:
        assert not [name for name, _ in running.opened.cases if name.startswith("batch")]
    assert notices == ["the reference failed: fewer rows end the device's work; it is started again"]


def test_a_baseline_that_fails_has_its_reason_and_the_others_go_on(tmp_path, problem, lender, monkeypatch):
    start = Baselines.start_one

    def failing(self, name, server):
        if name == "compile":
            raise EvaluatorError("no compiler")
        return start(self, name, server)

    monkeypatch.setattr(Baselines, "start_one", failing)
    notices = []
    with lender.lend(Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=tmp_path, baselines=("compile", "eager"),
                               cache="warm", trust=Trust.OWN, notice=notices.append)) as running:
        assert [timing.subject for timing in running.baselines()] == ["eager"]
        assert "baseline compile is left out: no compiler" in notices


def test_baselines_that_are_compiled_may_come_after_the_first_right_candidate(tmp_path, problem, lender, monkeypatch):
    start = Baselines.start_one

    def uncompiled(self, name, server):
        eager = self.workers.get("eager")
        worker = start(self, "eager", server)
        if eager is not None:
            self.workers |= {name: self.workers["eager"], "eager": eager}
        return worker

    monkeypatch.setattr(Baselines, "start_one", uncompiled)
    steps = []
    with lender.lend(Evaluator(problem, device="cpu", accuracy=Accuracy.FP32, home=tmp_path, baselines=("compile", "eager"),
                               cache="warm", trust=Trust.OWN, step=steps.append, compiles_later=True)) as running:
        assert [timing.subject for timing in running.baselines()] == ["eager"]
        assert "compiling the torch.compile baseline" not in steps
        source = plain("return y")
        right = running.evaluate(Candidate(source, "by hand", {}, "cpu"), running.builder().build(source))
        assert right.status is Status.OK, right.reason
        running.compared.prepared(every=True)
        assert [timing.subject for timing in running.baselines()] == ["compile", "eager"]


def test_pytorchs_own_flags_are_stored_as_fp32_on_the_cpu(evaluator):
    assert evaluator.accuracy is Accuracy.FP32


def test_a_spare_worker_that_died_is_replaced(evaluator):
    assert judged(evaluator).status is Status.OK
    spare = evaluator.spare._ready.result()
    os.kill(spare.child._pid, 9)
    until = time.monotonic() + 10
    while not spare.child.has_ended() and time.monotonic() < until:
        time.sleep(0.01)
    assert judged(evaluator).status is Status.OK


def killed_while_validated(monkeypatch, times, whom):
    """Kills a candidate's processes when validation begins, so many times: the worker itself, or the one that keeps it."""
    validate, left = Judging._validate, [None] * times

    def killing(self):
        if left:
            left.pop()
            keeper = self._worker.child._pid
            os.kill(keeper if whom == "keeper" else max(sandbox.descendants(keeper)), signal.SIGKILL)
        validate(self)

    monkeypatch.setattr(Judging, "_validate", killing)


@pytest.mark.parametrize("whom", ["worker", "keeper"])
def test_candidate_whose_process_was_killed_is_judged_again(evaluator, monkeypatch, whom):
    killed_while_validated(monkeypatch, 2, whom)
    assert judged(evaluator).status is Status.OK
    assert len(evaluator.notices) == 2 and evaluator.notices[-1].endswith("; it is tried again")


def test_candidate_that_is_killed_in_each_try_has_crashed(evaluator, monkeypatch):
    killed_while_validated(monkeypatch, 9, "worker")
    evaluation = judged(evaluator)
    assert evaluation.status is Status.CRASHED and "killed by SIGKILL" in evaluation.reason
    assert len(evaluator.notices) == TRIES - 1


@pytest.mark.parametrize("number, tries", [("SIGKILL", TRIES), ("SIGSEGV", 1), ("SIGABRT", 1)])
def test_candidate_that_ends_itself_has_crashed(evaluator, number, tries):
    source = plain(f"import os, signal\nos.kill(os.getpid(), signal.{number})")
    evaluation = evaluator.evaluate(Candidate(source, "by hand", {}, "cpu"), evaluator.builder().build(source))
    assert evaluation.status is Status.CRASHED and f"killed by {number}" in evaluation.reason
    assert len(evaluator.notices) == tries - 1


def test_limits_of_kgen_itself_are_no_signals_from_outside(evaluator):
    child = judged_child(evaluator)
    child._most_bytes = -1
    with pytest.raises(ChildDied) as caught:
        child.check_limits()
    assert not caught.value.from_outside
    with pytest.raises(ChildDied) as caught:
        child.answer(deadline=None)
    assert not caught.value.from_outside


def judged_child(evaluator):
    """The process of a spare worker, which has a family and limits."""
    assert judged(evaluator).status is Status.OK
    return evaluator.spare._ready.result().child


def test_workers_of_a_large_problem_free_their_memory_between_turns(evaluator, monkeypatch):
    monkeypatch.setattr(evaluator, "large", True)
    evaluation = judged(evaluator)
    assert evaluation.status is Status.OK, evaluation.reason
    build = evaluator.builder().build(SOURCE)
    timings = evaluator.finals([(Candidate(SOURCE, "by hand", {}, "cpu"), build)], seconds=0.5)
    assert len(timings) == 2


def test_of_large_outputs_the_second_is_still_compared_with_the_first(evaluator, monkeypatch):
    monkeypatch.setattr("kgen.evaluator.workers.LARGE_BYTES", 0)
    assert judged(evaluator).status is Status.OK
    source = plain("self.calls = getattr(self, 'calls', 0) + 1\nreturn y + (self.calls + 1) % 2")
    evaluation = evaluator.evaluate(Candidate(source, "by hand", {}, "cpu"), evaluator.builder().build(source))
    assert evaluation.status is Status.NONDETERMINISTIC, evaluation.reason
