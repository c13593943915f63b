"""The evaluators of a device: how many are open, and which one ends for another."""

from __future__ import annotations

import threading

import pytest

from kgen.errors import DatabaseError, EvaluatorError, ProblemError
from kgen.evaluator.runtime import process
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy
from kgen.serve.asked import Asked
from kgen.serve.bench import Bench, fork_servers, make_evaluator


def asked(problem: str) -> Asked:
    return Asked(Problem(problem, f"{problem}.py", problem), False, "", "cuda", Accuracy.FP32, ("eager",), 1.0, "cold")


class Evaluator:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def start(self) -> None:
        self.log.append(f"start {self.name}")
        if self.name == "broken":
            raise ProblemError("broken.py: it raised")

    def close(self) -> None:
        self.log.append(f"end {self.name}")


def bench(most: int) -> tuple[Bench, list[str]]:
    log: list[str] = []
    return Bench("cpu", lambda one, device: Evaluator(one.problem.name, log), most), log  # type: ignore[arg-type, return-value]


def use(found: Bench, *names: str) -> None:
    for name in names:
        with found.take(asked(name)):
            pass


def test_evaluator_stays_open_for_the_next_candidate_of_its_problem() -> None:
    found, log = bench(1)
    use(found, "a", "a")
    assert log == ["start a"]


def test_evaluator_that_was_unused_for_longest_ends_before_another_starts() -> None:
    found, log = bench(2)
    use(found, "a", "b", "a", "c")
    assert log == ["start a", "start b", "end b", "start c"]


@pytest.mark.parametrize(("error", "ended"), [(EvaluatorError("dead"), True), (KeyError("bug"), True), (DatabaseError("full"), False)])
def test_evaluator_that_failed_is_not_used_again(error: Exception, ended: bool) -> None:
    found, log = bench(1)
    with pytest.raises(type(error)), found.take(asked("a")):
        raise error
    use(found, "a")
    assert log == (["start a", "end a", "start a"] if ended else ["start a"])


def test_failed_evaluator_ends_after_the_last_that_has_it() -> None:
    found, log = bench(1)
    with found.take(asked("a")):
        with pytest.raises(EvaluatorError), found.take(asked("a")):
            raise EvaluatorError("dead")
        assert log == ["start a"]
    assert log == ["start a", "end a"]


def test_fault_of_a_problem_is_known_after_the_first_start() -> None:
    found, log = bench(1)
    for _ in range(2):
        with pytest.raises(ProblemError, match="it raised"), found.take(asked("broken")):
            pass
    assert log == ["start broken"]


def test_taker_waits_for_a_place_until_the_bench_closes() -> None:
    found, log = bench(1)
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            use(found, "b")
        except EvaluatorError as error:
            errors.append(error)

    with found.take(asked("a")):
        waiting = threading.Thread(target=wait)
        waiting.start()
        found.close()
        waiting.join()
    assert [str(error) for error in errors] == ["the service ends"] and log == ["start a", "end a"]


def test_fork_server_that_was_loaded_ahead_serves_the_evaluator_of_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[object] = []
    launch = process.launch
    monkeypatch.setattr(process, "launch", lambda *given: launched.append(given) or launch(*given))
    with process.servers_kept():
        (ahead,) = fork_servers("cpu", 1)
        ahead.keep_loaded()
        server = make_evaluator(asked("a"), "cpu", lambda text: None).server
        server.start()
        server.close()
        ahead.close()
    assert len(launched) == 1
