"""The rows of a suite's charts: the speedup of each problem beside its roofline, and the curve of ``fast_p``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

from kgen.codegen import roofline
from kgen.codegen.roofline import Arithmetic
from kgen.store.scores import THRESHOLDS, Score, Summary, fast, summary
from kgen.views import text
from kgen.views.report import ceilings
from kgen.views.report.sections import Section

_BEYOND = 1.15  #: how far the curve goes on behind the largest speedup


@dataclass(frozen=True)
class Scored:
    """A problem that is right. ``speedup`` is over eager, with the ends of its interval.

    ``roof`` is the speedup of a run at the device's limits, where they are known. Without a right kernel of its own,
    the speedup is 1.
    """

    problem: str
    verdict: str
    speedup: float
    low: float
    high: float
    roof: float | None
    figures: str
    limit: str
    time: str
    plan: str


@dataclass(frozen=True)
class Fast:
    """A point of the curve: ``share`` of all problems are right and more than ``p`` times as fast as eager."""

    p: float
    share: float
    label: str = ""


@dataclass(frozen=True)
class Suite:
    """The rows of a suite's charts, and the summary beside them."""

    scored: tuple[Scored, ...]
    curve: tuple[Fast, ...]
    marked: tuple[Fast, ...]
    classes: str
    total: Summary


def of(scores: Sequence[Score], sections: Sequence[Section]) -> Suite:
    """The rows of some problems, the largest speedup first; ``sections`` know their rooflines."""
    sweeps = {row.id: section for section in sections for row in section.sweeps}
    rows = [_scored(score, sweeps.get(score.sweep or "")) for score in scores if score.right]
    total = summary(scores)
    return Suite(
        scored=tuple(sorted(rows, key=lambda row: -row.speedup)),
        curve=_curve([row.speedup for row in rows], len(scores)),
        marked=tuple(
            Fast(p, share, f"fast_{p:g}: {share:.1%}") for p, share in total.fast.items() if p in THRESHOLDS[1:]
        ),
        classes=", ".join(dict.fromkeys(score.accuracy for score in scores if score.accuracy)),
        total=total,
    )


def _scored(score: Score, section: Section | None) -> Scored:
    speedup = score.over_eager
    roof = _roof(score, section)
    return Scored(
        problem=score.problem,
        verdict=str(score.verdict),
        speedup=speedup.mid if speedup else 1.0,
        low=speedup.low if speedup else 1.0,
        high=speedup.high if speedup else 1.0,
        roof=roof,
        figures=text.speedup(speedup.mid, speedup.low, speedup.high) if speedup else "PyTorch's own operators",
        limit=text.speedup(roof),
        time=text.milliseconds(score.ms),
        plan=score.plan or text.MISSING,
    )


def _roof(score: Score, section: Section | None) -> float | None:
    """The speedup over eager of a run at the device's limits, with the arithmetic of the best candidate."""
    basis = ceilings.basis(section) if section else None
    eager = score.baselines.get("eager")
    if section is None or basis is None or not eager:
        return None
    trial, accuracy = section.best.trial, section.best.accuracy
    arithmetic = ceilings.arithmetic_of(section, trial) if trial else Arithmetic.of_library(accuracy)
    fraction = roofline.of(basis, eager, arithmetic).fraction
    return 1.0 / fraction if fraction else None


def _curve(speedups: Sequence[float], problems: int) -> tuple[Fast, ...]:
    """``fast_p`` at 0 and wherever it falls, and on to behind the largest speedup."""
    falls = sorted({0.0, *speedups})
    end = max(THRESHOLDS[-1], falls[-1]) * _BEYOND
    return tuple(Fast(p, fast(speedups, problems, p)) for p in (*falls, end))
