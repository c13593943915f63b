"""How forward is launched: kernel by kernel, or as one CUDA graph where the host takes longer for a call than the device.

The evaluator queues work in front of a call, so that a sample is the device's time. A caller whose queue is empty waits for
the host, too. A graph takes the host a fraction of that, and the device copies of inputs and results.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Sequence, TypeVar

from kgen.candidate import GRAPH, LAUNCHING, Candidate
from kgen.protocol import LAUNCH_MS, Timing
from kgen.statistics import median_ms
from kgen.tuning.design import Design
from kgen.tuning.search import Point

WORTH = 1.1  #: times: a graph must save its callers so much, and may cost the device so much

Judged = TypeVar("Judged")


def waiting_ms(timing: Timing) -> float:
    """Milliseconds that a caller with an empty queue waits at least: those of the device or of the host, the longer ones."""
    host = dict(timing.conditions).get(LAUNCH_MS, 0.0)
    return max(median_ms(timing), float(host))


def as_graph(design: Design, point: Point, timing: Timing) -> Point | None:
    """The point whose forward is one graph, where that may save its callers time; else ``None``."""
    worth = waiting_ms(timing) > WORTH * median_ms(timing)
    return replace(point, launching=GRAPH) if worth and not point.launching and design.obstacle(point) is None else None


def is_graph(candidate: Candidate) -> bool:
    return candidate.params.get(LAUNCHING) == GRAPH


def served(judged: Sequence[Judged], of: Callable[[Judged], tuple[Candidate, Timing]]) -> list[Judged]:
    """Those that may be the best: candidates with a graph alone where that is worth it, else those without one."""
    graphs, plain = ([one for one in judged if is_graph(of(one)[0]) is wanted] for wanted in (True, False))
    if not graphs or not plain:
        return list(judged)
    waits, takes = (min(figure(of(one)[1]) for one in plain) for figure in (waiting_ms, median_ms))
    worth = [one for one in graphs if WORTH * waiting_ms(of(one)[1]) < waits and median_ms(of(one)[1]) <= WORTH * takes]
    return worth or plain
