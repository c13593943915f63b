"""The leaders of a sweep: the fastest right candidates beside the baselines, as the finals or the screenings rank
them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Mapping, Sequence

from kgen.candidate import Candidate
from kgen.protocol import Evaluation, Timing, statistics
from kgen.protocol.statistics import Interval, median_ms
from kgen.tuning import events, launching

FINALISTS = 5  # candidates; limit of those that are timed again
FINALIST_MARGIN = 1.10  # times the fastest screening; limit for a finalist


@dataclass(frozen=True)
class Right:
    """A right candidate with the median and the speedup of its screening."""

    candidate: Candidate
    evaluation: Evaluation
    ms: float
    speedup: Interval | None


def by_ms(right: Right) -> float:
    return right.ms


def fastest(right: Sequence[Right]) -> list[Right]:
    """The fastest candidates with a kernel of their own, those launched in another way, and the fastest controls."""
    own, controls = ([r for r in right if r.candidate.control is of] for of in (False, True))
    kinds = *([r for r in own if launching.is_other(r.candidate) is of] for of in (False, True)), controls
    return [r for kind in kinds for r in heapq.nsmallest(FINALISTS, kind, key=by_ms)]


def close(right: Sequence[Right]) -> list[Right]:
    """The fastest candidates with a kernel of their own, by screening; the fastest control where none is right.

    The control's speedup then comes from interleaved samples, too: a baseline's screening may have met a busy machine.
    """
    own = sorted((r for r in right if not r.candidate.control), key=by_ms)
    own = launching.served(own, lambda r: (r.candidate, r.evaluation.timing))
    found = own or sorted(right, key=by_ms)[:1]
    return [r for r in found[:FINALISTS] if r.ms <= FINALIST_MARGIN * found[0].ms]


def screened(right: Sequence[Right], baselines: Mapping[str, Sequence[Timing]]) -> tuple[events.Leader, ...]:
    """The leaders by screening alone, with the ``baselines`` by device. They have no interval, because screenings are
    not interleaved."""
    medians = {t.subject: median_ms(t) for timings in baselines.values() for t in timings}
    least = min(medians.values(), default=None)
    rows = [
        _leader(r, r.ms, r.speedup and r.speedup.mid, None, False) for r in heapq.nsmallest(FINALISTS, right, key=by_ms)
    ]
    rows += [_baseline(name, ms, least / ms if least else None, None) for name, ms in medians.items()]
    return tuple(sorted(rows, key=lambda row: row.median_ms))


def ranked(candidates: list[Timing], baselines: list[Timing], by_id: dict[str, Right]) -> tuple[events.Leader, ...]:
    """Finalists, then baselines, each from the best down, with speedups over the fastest baseline."""

    def tie_break(timing: Timing) -> tuple[int, int, str]:
        candidate = by_id[timing.subject].candidate
        return candidate.kernels, candidate.source_lines, candidate.id

    best = statistics.fastest(baselines)
    rows = []
    for rank in statistics.leaders(candidates, tie_break):
        found = statistics.standing(best, rank.timing)
        rows.append(_leader(by_id[rank.timing.subject], found.ms, found.speedup.mid, found.speedup, rank.tie))
    standings = [statistics.standing(best, timing) for timing in baselines]
    for found in sorted(standings, key=lambda found: (found.timing is not best, found.ms)):
        rows.append(_baseline(found.timing.subject, found.ms, found.speedup.mid, found.speedup))
    return tuple(rows)


def _leader(right: Right, ms: float, speedup: float | None, interval: Interval | None, tie: bool) -> events.Leader:
    candidate = right.candidate
    return events.Leader(
        candidate=candidate.id,
        name=candidate.plan,
        params=", ".join(f"{name}={value}" for name, value in candidate.params.items()),
        median_ms=ms,
        speedup=speedup,
        speedup_low=interval and interval.low,
        speedup_high=interval and interval.high,
        error_ratio=right.evaluation.error_ratio,
        tie=tie,
        control=candidate.control,
        plan_data=candidate.plan_data,
    )


def _baseline(name: str, ms: float, speedup: float | None, interval: Interval | None) -> events.Leader:
    return events.Leader(
        candidate=None,
        name=name,
        params="",
        median_ms=ms,
        speedup=speedup,
        speedup_low=interval and interval.low,
        speedup_high=interval and interval.high,
        error_ratio=None,
        tie=False,
        control=True,
    )
