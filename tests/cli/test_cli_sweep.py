"""``kgen sweep``: what it passes on, what it prints, and its exit code."""

from __future__ import annotations

import json
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import pytest
from samples import Filled, candidate
from typed import kgen

from kgen.problems.problem import Problem
from kgen.protocol import BASELINES, Accuracy, Status
from kgen.protocol.statistics import Interval
from kgen.tuning import events


@dataclass(frozen=True)
class Request:
    """Stands for :class:`kgen.tuning.sweep.SweepRequest`."""

    problem: Problem
    device: str | None
    accuracy: Accuracy
    budget: int | None
    seconds: float | None
    strategy: str | None
    seed: int
    jobs: int | None
    baselines: tuple[str, ...]
    fresh: bool
    db: str | None
    weight_copies: bool


@pytest.fixture
def conductor(monkeypatch: pytest.MonkeyPatch, won: Filled) -> list[Request]:
    """Replaces the sweep by the events of the one in the database; returns the requests that it received."""
    return conduct(monkeypatch, won, "finished")


def conduct(
    monkeypatch: pytest.MonkeyPatch, filled: Filled, state: str, told: Iterator[events.Event] | None = None
) -> list[Request]:
    requests: list[Request] = []

    def run(request: Request, tell: Callable[[events.Event], None], devices: object) -> None:
        requests.append(request)
        for event in told or news(filled, state):
            tell(event)

    module = types.ModuleType("kgen.tuning.sweep")
    vars(module).update(SweepRequest=Request, run=run)
    monkeypatch.setitem(sys.modules, "kgen.tuning.sweep", module)
    opening = types.ModuleType("kgen.tuning.opening")
    vars(opening).update(SweepRequest=Request, ahead=lambda *_: nullcontext())
    monkeypatch.setitem(sys.modules, "kgen.tuning.opening", opening)
    return requests


def news(filled: Filled, state: str) -> Iterator[events.Event]:
    """The events of a sweep whose results are in the database."""
    judged = filled.database.evaluated(filled.sweep)
    yield events.Started(
        filled.sweep, "made_up", "train", "cpu", filled.environment, "fp32", 2, 10, 3, 5, 0, filled.database.name
    )
    yield events.Notice("the machine is busy")
    yield events.Measured((("eager", 4.0), ("compile", 3.0)), "cpu")
    for text in ("winner", "wrong"):
        if candidate(text).id in judged:
            speedup = Interval(1.4, 1.5, 1.6) if text == "winner" else None
            yield events.Evaluated(1, candidate(text), judged[candidate(text).id], 2.0, speedup)
    yield events.Finals((candidate("winner").id,))
    counts = Counter(str(item.status) for item in judged.values())
    leader = events.Leader(candidate("winner").id, "inner_reduction[gelu]", "k0.block=128", 2.0, 1.5, 1.4, 1.6, 0.5, False, False)
    baseline = events.Leader(None, "compile", "", 3.0, 1.0, 1.0, 1.0, None, False, False)
    won = bool(counts["ok"])
    leaders = (leader, baseline) if won else ()
    best = candidate("winner").id if won else None
    yield events.Finished(filled.sweep, state, 61.0, tuple(counts.items()), leaders, best, won)


def test_sweep_is_given_what_was_typed(conductor: list[Request]) -> None:
    typed = "-D batch_size=16 --mode eval --device cpu --accuracy kernelbench --budget 7 --time 60 --jobs 2 --fresh"
    typed += " --strategy random --seed 3 --no-weight-copies"
    assert kgen("sweep", "made_up", *typed.split(), "--baselines", "compile,eager").code == 0
    [request] = conductor
    assert (request.problem.overrides, request.problem.asked_mode) == ((("batch_size", 16),), "eval")
    baselines = ("eager", "compile")
    assert request == Request(request.problem, "cpu", Accuracy.KERNELBENCH, 7, 60.0, "random", 3, 2, baselines, True, None, False)


def test_sweep_compares_with_every_baseline_by_default(conductor: list[Request]) -> None:
    assert kgen("sweep", "made_up").code == 0
    assert conductor[0].baselines == BASELINES and conductor[0].weight_copies


def test_sweep_shows_device_baselines_leaders_failures_and_the_next_command(conductor: list[Request]) -> None:
    answer = kgen("sweep", "made_up")
    assert answer.code == 0
    for fact in ("on cpu: a cpu", "eager 4 ms", "1.500x [1.400, 1.600]", "row 3 is off", "the machine is busy"):
        assert fact in answer.out
    assert "kgen best made_up -o made_up_fast.py" in answer.out


def test_quiet_sweep_shows_only_its_end(conductor: list[Request]) -> None:
    out = kgen("sweep", "made_up", "-q").out
    assert "on cpu" not in out and "1.500x [1.400, 1.600]" in out


def test_sweep_as_json_is_one_object_for_each_event(conductor: list[Request]) -> None:
    lines = [json.loads(line) for line in kgen("sweep", "made_up", "--json").out.splitlines()]
    kinds = ["started", "notice", "measured", "evaluated", "evaluated", "finals", "finished"]
    assert [line["event"] for line in lines] == kinds
    assert (lines[3]["candidate"], lines[3]["status"]) == (candidate("winner").id, "ok")
    assert lines[-1]["counts"] == {"ok": 1, "wrong_values": 1}


def test_sweep_with_nothing_right_says_why_most_failed_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, filled: Filled
) -> None:
    filled.judge(candidate("wrong"), Status.BUILD_ERROR, reason="expected ';'")
    conduct(monkeypatch, filled, "finished")
    answer = kgen("sweep", "made_up")
    assert (answer.code, answer.err.count("\n")) == (1, 1)
    assert "1 of 1 ended as build_error" in answer.err and "expected ';'" in answer.err


def test_interrupted_sweep_shows_the_table_so_far_with_exit_code_130(
    monkeypatch: pytest.MonkeyPatch, won: Filled
) -> None:
    conduct(monkeypatch, won, "interrupted")
    answer = kgen("sweep", "made_up")
    assert (answer.code, "1.500x" in answer.out) == (130, True)


def lose(filled: Filled, low: float, mid: float, high: float) -> Iterator[events.Event]:
    """The events of a finished sweep whose best has this speedup, which does not beat PyTorch."""
    best = candidate("loser")
    filled.finish(best, low, mid, high)
    leader = events.Leader(best.id, "row[gelu]", "", 3.0 / mid, mid, low, high, 0.5, False, False)
    yield events.Finished(filled.sweep, "finished", 61.0, (("ok", 1),), (leader,), best.id, False)


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        ((0.85, 0.9, 0.95), "nothing beats PyTorch here; more: kgen show"),
        ((0.99, 1.0, 1.01), "the same: the best kernel is as fast as PyTorch (1x, between 0.99x and 1.01x)"),
        ((0.77, 1.19, 1.64), "the machine was too busy to tell whether anything beats PyTorch here (1.19x, between"),
    ],
)
def test_sweep_without_a_winner_says_so_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, filled: Filled, interval: tuple[float, float, float], message: str
) -> None:
    conduct(monkeypatch, filled, "finished", lose(filled, *interval))
    answer = kgen("sweep", "made_up")
    assert (answer.code, answer.err.count("\n"), message in answer.err) == (1, 1, True)
    assert ("busy: the machine was too busy" in answer.out) == ("busy" in message)


def test_sweep_whose_finals_were_cut_asks_for_more_time(monkeypatch: pytest.MonkeyPatch, filled: Filled) -> None:
    fast = candidate("fast")
    filled.judge(fast)
    screened = events.Leader(fast.id, "row[gelu]", "", 1.0, 2.5, None, None, 0.5, False, False)
    ended = events.Finished(filled.sweep, "finished", 61.0, (("ok", 1),), (screened,), fast.id, False)
    conduct(monkeypatch, filled, "finished", iter([ended]))
    answer = kgen("sweep", "made_up")
    assert (answer.code, "time was up before the finals" in answer.err, "nothing beats" in answer.err) == (1, True, False)


def test_sweep_with_nothing_but_the_control_right_says_so_with_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, filled: Filled
) -> None:
    filled.judge(candidate("control", control=True))
    filled.judge(candidate("own"), Status.WRONG_VALUES, reason="row 3 is off")
    ended = events.Finished(filled.sweep, "finished", 61.0, (("ok", 1), ("wrong_values", 1)), (), None, False)
    conduct(monkeypatch, filled, "finished", iter([ended]))
    answer = kgen("sweep", "made_up", "--json")
    assert (answer.code, "no candidate with a kernel of its own was right" in answer.err) == (1, True)


def test_sweep_that_judged_the_control_alone_asks_for_more_time(monkeypatch: pytest.MonkeyPatch, filled: Filled) -> None:
    filled.judge(candidate("control", control=True))
    ended = events.Finished(filled.sweep, "finished", 61.0, (("ok", 1),), (), None, False)
    conduct(monkeypatch, filled, "finished", iter([ended]))
    answer = kgen("sweep", "made_up")
    assert (answer.code, "give it a longer --time" in answer.err) == (1, True)


def test_sweep_of_a_problem_without_kernels_says_that_kgen_has_none(monkeypatch: pytest.MonkeyPatch, filled: Filled) -> None:
    filled = Filled(filled.database, combinations=1)
    filled.judge(candidate("control", control=True))
    ended = events.Finished(filled.sweep, "finished", 61.0, (("ok", 1),), (), None, False)
    conduct(monkeypatch, filled, "finished", iter([ended]))
    answer = kgen("sweep", "made_up")
    assert (answer.code, "kgen has no kernel for it; `kgen plan` says why" in answer.err) == (1, True)
