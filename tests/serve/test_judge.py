"""The judge: its queue, its retries, and what it does after a service that was killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kgen.errors import EvaluatorError, ProblemError
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy
from kgen.serve import judge as module
from kgen.serve.asked import Asked, RequestError, from_json
from kgen.serve.judge import Draining, Judge, QueueFull
from kgen.serve.metrics import Metrics
from kgen.store import Database, requests
from kgen.store.requests import DONE, StoredRequest

_SECONDS = 30.0  # s; a test that waits longer hangs


def asked(candidate: str, problem: str = "p") -> Asked:
    return Asked(Problem(problem, f"{problem}.py", problem), False, candidate, "cuda", Accuracy.FP32, ("eager",), 1.0, "cold")


def request(id: str, candidate: str = "", problem: str = "p", priority: int = 0) -> tuple[StoredRequest, Asked]:
    one = asked(candidate or id, problem)
    return StoredRequest("", id, one.digest, priority, one.to_json()), one


class Bench:
    """A device whose evaluators fail as the text of a candidate says: ``dies``, ``dies once``, ``bad problem``."""

    device, most = "cpu", 1

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.going = threading.Event()  # evaluations wait for it
        self.going.set()
        self.busy = threading.Event()  # one has begun

    def opened(self) -> dict[str, bool]:
        return {asked("", name[0]).bench: True for name in self.judged[-1:]}

    @contextmanager
    def take(self, one: Asked) -> Iterator[Any]:
        self.busy.set()
        assert self.going.wait(_SECONDS)
        self.judged.append(one.problem.name + one.candidate)
        if one.candidate == "bad problem":
            raise ProblemError("p.py:3: it raised")
        if "bug" in one.candidate:
            raise KeyError("a bug")
        if "dies" in one.candidate and ("once" not in one.candidate or len(self.judged) == 1):
            raise EvaluatorError("its process died")
        yield SimpleNamespace(environment=SimpleNamespace(id="e1"))

    def close(self) -> None:
        self.going.set()


@pytest.fixture
def database() -> Iterator[Database]:
    with Database.open() as found:
        yield found


@pytest.fixture(autouse=True)
def verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every candidate that an evaluator takes is right."""
    monkeypatch.setattr(module.eval_file, "judge", lambda *arguments: None)
    monkeypatch.setattr(module.answers, "judged", lambda one, found: {"status": "ok", "right": True, "text": one.candidate})


@contextmanager
def judging(database: Database, bench: Bench, limit: int = 10) -> Iterator[Judge]:
    found = Judge(database, [bench], lanes=1, limit=limit, metrics=Metrics(), notice=lambda text: None)  # type: ignore[list-item]
    found.start()
    try:
        yield found
    finally:
        found.close()


def answer(database: Database, found: Judge, id: str) -> Any:
    """The answer of a request, once the judge has it."""
    for _ in range(int(_SECONDS * 100)):
        if found.events("", id, 0) is None:
            break
        threading.Event().wait(0.01)
    stored = requests.find(database, "", id)
    assert stored is not None and stored.state == DONE
    return stored.answer


def test_evaluation_whose_processes_die_is_judged_once_more(database: Database) -> None:
    bench = Bench()
    with judging(database, bench) as found:
        found.accept([request("a", "dies once")])
        assert answer(database, found, "a")["status"] == "ok"
        assert len(bench.judged) == 2 and found.metrics.total("kgen_retries_total") == 1


@pytest.mark.parametrize("candidate", ["dies", "bug"])
def test_evaluation_that_fails_twice_is_no_verdict_and_others_go_on(database: Database, candidate: str) -> None:
    bench = Bench()
    with judging(database, bench) as found:
        found.accept([request("a", candidate), request("b")])
        assert answer(database, found, "a")["status"] == "infra_error"
        assert answer(database, found, "b")["status"] == "ok"
    assert bench.judged == [f"p{candidate}", f"p{candidate}", "pb"]


def test_fault_of_the_problem_is_told_and_not_tried_again(database: Database) -> None:
    bench = Bench()
    with judging(database, bench) as found:
        found.accept([request("a", "bad problem")])
        assert answer(database, found, "a") == {
            "status": "problem_error", "reason": "p.py:3: it raised", "compiled": None, "right": None,
        }  # fmt: skip
    assert len(bench.judged) == 1


def test_device_leaves_the_problems_that_are_open_on_another_one_to_it(database: Database) -> None:
    here, there = Bench(), Bench()
    there.judged.append("p and a candidate")
    found = Judge(database, [here, there], lanes=1, limit=10, metrics=Metrics(), notice=lambda text: None)  # type: ignore[list-item]
    found.accept([request("a", problem="p"), request("b", problem="q"), request("c", problem="p")])
    assert [found._next(bench).asked.candidate for bench in (here, there, here)] == ["b", "a", "c"]  # type: ignore[arg-type,union-attr]


def test_lanes_share_the_evaluators_and_the_next_one_starts_beside_them(database: Database) -> None:
    bench = Bench()
    bench.most, opened = 2, {asked("", "p").bench: True}
    bench.opened = lambda: opened  # type: ignore[method-assign]
    found = Judge(database, [bench], lanes=4, limit=20, metrics=Metrics(), notice=lambda text: None)  # type: ignore[list-item]
    found.accept([request(f"{problem}{n}", problem=problem) for n in range(4) for problem in "rqp"])

    def taken() -> str:
        job = found._next(bench)  # type: ignore[arg-type]
        opened.setdefault(job.bench, False)  # type: ignore[union-attr]
        return job.asked.candidate  # type: ignore[union-attr]

    assert [taken() for _ in range(4)] == ["p0", "p1", "r0", "p2"]
    opened[asked("", "r").bench] = True
    assert taken() == "r1"


def test_queue_that_is_full_refuses_and_says_when_to_come_again(database: Database) -> None:
    bench = Bench()
    bench.going.clear()
    with judging(database, bench, limit=2) as found:
        found.accept([request("a"), request("b")])
        with pytest.raises(QueueFull) as full:
            found.accept([request("c")])
        assert full.value.seconds >= 1 and requests.find(database, "", "c") is None
        assert [one.id for one in found.accept([request("a")])] == ["a"]  # it is no new one
        bench.going.set()
        assert answer(database, found, "b")["text"] == "b"
        found.accept([request("c")])
        assert answer(database, found, "c")["text"] == "c"


def test_a_request_is_shown_from_memory_as_the_database_has_it_until_it_is_answered(database: Database) -> None:
    bench = Bench()
    bench.going.clear()
    with judging(database, bench) as judge:
        judge.accept([request("runs"), request("waits")])
        assert bench.busy.wait(_SECONDS)
        for id in ("runs", "waits"):
            waiting, stored = judge.waiting("", id), requests.find(database, "", id)
            assert waiting is not None and stored is not None
            assert module.answers.shown(waiting) == module.answers.shown(stored) and "candidate" not in waiting.asked
        bench.going.set()
        answer(database, judge, "runs")
        assert judge.waiting("", "runs") is judge.waiting("", "of nobody") is None


def test_id_of_another_evaluation_is_refused_with_all_of_its_batch(database: Database) -> None:
    with judging(database, Bench()) as found:
        found.accept([request("a")])
        with pytest.raises(RequestError, match="stands for another"):
            found.accept([request("b"), request("a", "other")])
        assert requests.find(database, "", "b") is None


def test_higher_priority_goes_first_then_problems_that_are_open(database: Database) -> None:
    bench = Bench()
    bench.going.clear()
    with judging(database, bench) as found:
        found.accept([request("1")])
        assert bench.busy.wait(_SECONDS)
        found.accept([request("2", problem="q"), request("3"), request("4", problem="q", priority=5)])
        bench.going.set()
        for id in "1234":
            answer(database, found, id)
    assert bench.judged == ["p1", "q4", "q2", "p3"]


def test_old_jobs_are_not_passed_for_ever(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_IN_A_ROW", 2)
    bench = Bench()
    bench.going.clear()
    with judging(database, bench, limit=20) as found:
        found.accept([request("0")])
        assert bench.busy.wait(_SECONDS)
        found.accept([request("old", problem="q"), *(request(str(n)) for n in range(1, 6))])
        bench.going.set()
        for id in ("old", "5"):
            answer(database, found, id)
    assert bench.judged.index("qold") == 3


def test_verdict_serves_a_later_request_in_the_same_environment(database: Database) -> None:
    bench = Bench()
    with judging(database, bench) as found:
        found.accept([request("a", "same")])
        answer(database, found, "a")
        found.accept([request("b", "same")])
        assert answer(database, found, "b")["reused"] is True
    assert bench.judged == ["psame"]


def test_next_service_goes_on_and_refuses_what_ended_too_many(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    added = requests.add(database, [request(id)[0] for id in ("waited", "ran", "poison")])
    assert [new for _, new in added] == [True] * 3
    assert requests.begin(database, "", "ran") == 1
    for number in range(1, module.SERVICES + 1):
        assert requests.begin(database, "", "poison") == number
        requests.adopt(database)
    bench = Bench()
    with judging(database, bench) as found:
        assert answer(database, found, "poison")["status"] == "infra_error"
        assert [answer(database, found, id)["status"] for id in ("waited", "ran")] == ["ok", "ok"]
    assert sorted(bench.judged) == ["pran", "pwaited"]


def test_request_gets_one_answer_alone(database: Database) -> None:
    requests.add(database, [request("a")[0]])
    assert requests.finish(database, [("", "a")], {"status": "ok"}) == [("", "a")]
    assert requests.finish(database, [("", "a")], {"status": "crashed"}) == []
    assert requests.find(database, "", "a").answer == {"status": "ok"}  # type: ignore[union-attr]


def test_service_that_drains_finishes_what_runs_and_keeps_the_rest(database: Database) -> None:
    bench = Bench()
    bench.going.clear()
    with judging(database, bench) as found:
        found.accept([request("a"), request("b")])
        assert bench.busy.wait(_SECONDS)
        found.drain()
        with pytest.raises(Draining):
            found.accept([request("c")])
        bench.going.set()
        found.finish()
    states = {id: requests.find(database, "", id).state for id in "ab"}  # type: ignore[union-attr]
    assert states == {"a": "done", "b": "queued"}


def test_answer_holds_what_every_database_can_store(database: Database) -> None:
    requests.add(database, [request("a")[0]])
    requests.finish(database, [("", "a")], {"status": "ok", "reason": "a\0b", "used": float("inf"), "errors": ({"x": "\0"},)})
    assert requests.find(database, "", "a").answer == {  # type: ignore[union-attr]
        "status": "ok", "reason": "a␀b", "used": "inf", "errors": [{"x": "␀"}],
    }  # fmt: skip


def test_request_is_read_back_as_it_was_asked() -> None:
    one = Asked(Problem("p", "p.py", "x = 1", (("n", 3),), "eval", "eval"), True, "text", "triton", Accuracy.FP32, ("eager",), 2.0, "warm")
    assert from_json(one.to_json()) == one and from_json(one.to_json()).digest == one.digest
