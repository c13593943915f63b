"""How forward is launched: by Python, by one call of C, or as a CUDA graph where the host takes longer than the device.

The evaluator queues work in front of a call, so that a sample is the device's time. A caller whose queue is empty waits
for the host, too. One call of C checks, allocates and launches. A graph takes the host least, and the device copies of
inputs and results.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Sequence, TypeVar

from kgen.candidate import LAUNCHING, WAYS, Candidate
from kgen.protocol import LAUNCH_MS, Timing
from kgen.protocol.statistics import median_ms
from kgen.tuning.design import Design
from kgen.tuning.search import Point

WORTH = 1.1  #: times: another way must save callers so much, and may cost the device so much

Judged = TypeVar("Judged")


def waiting_ms(timing: Timing) -> float:
    """The least milliseconds that a caller with an empty queue waits: the device's or the host's time, whichever is
    longer."""
    host = dict(timing.conditions).get(LAUNCH_MS, 0.0)
    return max(median_ms(timing), float(host))


def others(design: Design, point: Point, timing: Timing) -> list[Point]:
    """The point launched in other ways, where they may save its callers time."""
    if point.launching or waiting_ms(timing) <= WORTH * median_ms(timing):
        return []
    return [other for way in WAYS if design.obstacle(other := replace(point, launching=way)) is None]


def is_other(candidate: Candidate) -> bool:
    """Whether a candidate is launched in another way than by Python."""
    return LAUNCHING in candidate.params


def served(judged: Sequence[Judged], of: Callable[[Judged], tuple[Candidate, Timing]]) -> list[Judged]:
    """Those that may be the best: candidates launched in another way alone where that is worth it, else those by
    Python."""
    others, plain = ([one for one in judged if is_other(of(one)[0]) is wanted] for wanted in (True, False))
    if not others or not plain:
        return list(judged)
    waits, takes = (min(figure(of(one)[1]) for one in plain) for figure in (waiting_ms, median_ms))
    worth = [one for one in others if WORTH * waiting_ms(of(one)[1]) < waits and median_ms(of(one)[1]) <= WORTH * takes]
    return worth or plain
