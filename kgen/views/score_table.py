"""Scores as people read them: a row for each problem, then all of them together."""

from __future__ import annotations

from collections import Counter
from typing import Sequence

from rich.console import Console

from kgen.protocol.statistics import Interval
from kgen.store.scores import Score, Summary, Verdict
from kgen.views import text
from kgen.views.tables import grid, print_facts

_MOST_REASONS = 10  #: of failures by reason; the others are counted


def show(console: Console, scores: Sequence[Score], total: Summary) -> None:
    """The table of some problems, their failures by reason, and their summary."""
    classes = ", ".join(dict.fromkeys(score.accuracy for score in scores if score.accuracy)) or "none"
    console.print(f"class of accuracy: {classes}")
    table = grid("problem", "verdict", "> ms", "> speedup", "> over eager", "> error", "class", "plan or reason")
    for score in scores:
        table.add_row(
            score.problem,
            str(score.verdict),
            text.milliseconds(score.ms).removesuffix(" ms"),
            _figures(score.speedup),
            _figures(score.over_eager),
            text.error_ratio(score.error_ratio),
            score.accuracy or text.MISSING,
            text.plan(score.plan, score.plan_data)
            if score.plan and (score.speedup or not score.reason)
            else score.reason or text.MISSING,
        )
    console.print(table)
    _reasons(console, scores)
    print_facts(console, _facts(total))


def headline(total: Summary) -> str:
    """The verdicts in one line: ``12 faster, 3 same, 1 refused``."""
    return ", ".join(f"{total.verdicts[v]} {v}" for v in Verdict if total.verdicts.get(v)) or "none"


def _figures(speedup: Interval | None) -> str:
    return text.speedup(speedup.mid, speedup.low, speedup.high) if speedup else text.MISSING


def _facts(total: Summary) -> list[tuple[str, str]]:
    """The summary, by name."""
    fast = ", ".join(f"fast_{p:g} {share:.3f}" for p, share in total.fast.items())
    return [
        ("problems", f"{total.problems}: {headline(total)}"),
        ("correct", f"{total.right} of {total.problems} ({total.correct:.1%})"),
        ("fast_p", f"{fast} (share of all problems; over eager)"),
        (
            "geometric mean",
            f"{_mean(total.geomean)} over the fastest baseline, {_mean(total.geomean_over_eager)} over eager",
        ),
    ]


def _mean(value: float | None) -> str:
    return text.MISSING if value is None else f"{value:.3f}x"


def _reasons(console: Console, scores: Sequence[Score]) -> None:
    """The problems that failed, by reason, the most frequent first."""
    troubled = (Verdict.NONE_RIGHT, Verdict.REFUSED, Verdict.FAILED)
    failed = [score for score in scores if score.verdict in troubled]
    groups = Counter((score.verdict, _kind(score)) for score in failed)
    if not groups:
        return
    table = grid("> failed", "verdict", "for example", "reason")
    for (verdict, kind), count in groups.most_common(_MOST_REASONS):
        example = next(score for score in failed if (score.verdict, _kind(score)) == (verdict, kind))
        table.add_row(str(count), str(verdict), example.problem, kind)
    console.print(table)
    if len(groups) > _MOST_REASONS:
        console.print(f"and {len(groups) - _MOST_REASONS} more reasons")


def _kind(score: Score) -> str:
    """A reason without the file that it begins with, so that equal reasons of several problems are one."""
    place, colon, rest = (score.reason or "").partition(": ")
    return rest if colon and ".py" in place else score.reason or ""
