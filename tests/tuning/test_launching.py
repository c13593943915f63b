"""When a sweep tries a CUDA graph, and when the graph may win."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kgen.candidate import GRAPH, LAUNCHING, Candidate
from kgen.protocol import LAUNCH_MS, Depth, Timing
from kgen.tuning import launching
from kgen.tuning.search import Point


def timing(device: float, host: float) -> Timing:
    return Timing("x", Depth.SCREEN, "session", ((device, device),), None, ((LAUNCH_MS, host),) if host else ())


def judged(device: float, host: float, graph: bool = False) -> tuple[Candidate, Timing]:
    return Candidate("", "", {LAUNCHING: GRAPH} if graph else {}, "cuda", 1), timing(device, host)


@pytest.mark.parametrize(("device", "host", "obstacle", "tried"), [
    (0.3, 0.7, None, True), (0.7, 0.3, None, False), (0.7, 0.75, None, False), (0.3, 0.0, None, False), (0.3, 0.7, "draws", False),
])  # fmt: skip
def test_a_graph_is_tried_where_the_host_takes_longer_than_the_device(device: float, host: float, obstacle: str | None, tried: bool) -> None:
    design: Any = SimpleNamespace(obstacle=lambda point: obstacle)
    found = launching.as_graph(design, Point(1, (2, 3)), timing(device, host))
    assert found == (Point(1, (2, 3), GRAPH) if tried else None)
    assert launching.as_graph(design, Point(1, (2, 3), GRAPH), timing(device, host)) is None


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
