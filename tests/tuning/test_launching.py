"""When a sweep tries other ways of launching, and when they may win."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from models import design, made, source

from kgen.candidate import CALL, GRAPH, LAUNCHING, Candidate
from kgen.devices.hardware import for_arch
from kgen.protocol import LAUNCH_MS, Depth, Timing
from kgen.tuning import launching, sweep
from kgen.tuning.search import Point


def timing(device: float, host: float) -> Timing:
    return Timing("x", Depth.SCREEN, "session", ((device, device),), None, ((LAUNCH_MS, host),) if host else ())


def judged(device: float, host: float, graph: bool = False) -> tuple[Candidate, Timing]:
    return Candidate("", "", {LAUNCHING: GRAPH} if graph else {}, "cuda", 1), timing(device, host)


@pytest.mark.parametrize(("device", "host", "obstacle", "tried"), [
    (0.3, 0.7, None, True), (0.7, 0.3, None, False), (0.7, 0.75, None, False), (0.3, 0.0, None, False), (0.3, 0.7, "draws", False),
])  # fmt: skip
def test_other_ways_are_tried_where_the_host_takes_longer_than_the_device(device: float, host: float, obstacle: str | None, tried: bool) -> None:
    design: Any = SimpleNamespace(obstacle=lambda point: obstacle)
    found = launching.others(design, Point(1, (2, 3)), timing(device, host))
    assert found == ([Point(1, (2, 3), way) for way in (CALL, GRAPH)] if tried else [])
    assert launching.others(design, Point(1, (2, 3), GRAPH), timing(device, host)) == []


@pytest.mark.parametrize(("graph", "wins"), [
    ((0.32, 0.05), True),  # callers wait 0.32 ms, not 0.7
    ((0.32, 0.69), False),  # they wait no less
    ((0.4, 0.05), False),  # the device works a third longer
])  # fmt: skip
def test_a_graph_wins_where_callers_wait_less_and_the_device_hardly_longer(graph: tuple[float, float], wins: bool) -> None:
    plain, other, of = judged(0.3, 0.7), judged(0.31, 0.8), judged(*graph, graph=True)
    assert launching.served([plain, other, of], lambda one: one) == ([of] if wins else [plain, other])
    assert launching.served([plain, other], lambda one: one) == [plain, other]
    assert launching.served([of], lambda one: one) == [of]


def test_a_sweep_that_has_spent_its_budget_launches_its_fastest_candidate_in_other_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    of = design(made(source("return torch.softmax(x, 1)")), for_arch("sm_90"))
    point = Point(0, of.options[0].plainest)
    found = of.candidate(point)
    request: Any = SimpleNamespace(strategy=None, budget=2, seed=0)
    one: Any = sweep._Sweep(request, None, None, of, print, 0.0)
    one.points = {found.id: point, "the control's": of.control}
    judged: list[Candidate] = []
    monkeypatch.setattr(sweep.paths, "write_candidate", lambda name, text: None)
    monkeypatch.setattr(one, "_finalists", lambda: [SimpleNamespace(candidate=found, evaluation=SimpleNamespace(timing=timing(0.1, 0.5)))])
    monkeypatch.setattr(one, "_judge_all", lambda pipeline, search: judged.extend(candidate for _, candidate in one._asked(search)))
    one._judge_other_launches(None)
    assert [candidate.params.get(LAUNCHING) for candidate in judged] == [CALL, GRAPH]
