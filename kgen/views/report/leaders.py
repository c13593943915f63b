"""The table of leaders: the fastest candidates among the baselines, and the places of their intervals."""

from __future__ import annotations

from dataclasses import dataclass

from kgen.store.results import Trial, side
from kgen.views import text
from kgen.views.report.sections import Section


@dataclass(frozen=True)
class Leader:
    """A candidate, or a baseline (``plan`` is ``None``), with a ``mark`` for a special one.

    ``speedup`` is over the fastest baseline. ``low`` and ``high`` are the ends of its 95% interval; screened candidates
    have none. ``ms`` follows from the speedup.
    """

    name: str
    mark: str
    plan: str | None
    params: str
    kernels: int | None
    ms: float
    speedup: float
    low: float | None
    high: float | None
    error: float | None

    @property
    def figures(self) -> str:
        """The speedup with its interval in words."""
        return text.speedup(self.speedup, self.low, self.high)

    @property
    def side(self) -> str:
        """``fast``, ``slow`` or ``even``, as :func:`kgen.store.results.side` says."""
        return side(self.speedup, self.low, self.high)


@dataclass(frozen=True)
class Scale:
    """The column of the drawn intervals, from ``low`` to ``high``."""

    low: float
    high: float

    def percent(self, speedup: float) -> float:
        """The place of a speedup, in percent of the column's width."""
        return round(100 * (speedup - self.low) / (self.high - self.low), 2)


def leaders(section: Section, most: int) -> tuple[Leader, ...]:
    """The first ``most`` candidates and all baselines: the best, then finalists by speedup, then screened ones."""
    found = [leader for trial in section.right[:most] if (leader := _candidate(trial, section)) is not None]
    for name, ms in section.baselines.items():
        speedup = section.baselines[section.reference] / ms if section.reference else 1.0
        found.append(Leader(name, "baseline", None, "", None, ms, speedup, None, None, 1.0))
    return tuple(sorted(found, key=lambda row: (row.mark != "best", row.mark == "screened", -row.speedup)))


def scale(rows: tuple[Leader, ...]) -> Scale:
    """A column that holds every interval, and the speedup 1 with some room on both sides."""
    ends = [1.0, *(end for row in rows for end in (row.low, row.speedup, row.high) if end is not None)]
    room = 0.04 * (max(ends) - min(ends)) or 0.1
    return Scale(min(ends) - room, max(ends) + room)


def _candidate(trial: Trial, section: Section) -> Leader | None:
    ms = section.ms(trial)
    if ms is None or trial.speedup is None:
        return None
    return Leader(
        name=text.short(trial.candidate),
        mark=_mark(trial, section),
        plan=trial.plan,
        params=text.params(trial.params),
        kernels=trial.kernels,
        ms=ms,
        speedup=trial.speedup,
        low=trial.speedup_low,
        high=trial.speedup_high,
        error=trial.error_ratio,
    )


def _mark(trial: Trial, section: Section) -> str:
    """The most important fact about a candidate in one or two words."""
    best = section.best.trial
    marks = (
        ("best", best is not None and trial.candidate == best.candidate),
        ("control", trial.control),
        ("screened", not trial.final),
        ("as fast", trial.candidate in section.tied),
        ("too busy to tell", trial.too_busy),
    )
    return next((mark for mark, holds in marks if holds), "")
