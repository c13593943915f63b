"""Candidates that draw their own random numbers: judged by the moments of many runs, not by values.

A tensor is seen as rows (along the last dimension) by columns. Runs of the reference in float64 give the *centre* of
each element and the *scale* of each row. Deviations (y - centre) / scale of the reference's float32 runs and of a right
candidate's runs then have the same distribution, whatever the operator is. So each statistic has one value for each
run, on either side. Student's t for two samples of one variance compares them. It becomes a normal deviate z (Wallace
1959). The largest of M deviates may reach the bound of Bonferroni, z <= Phi^-1(1 - ALPHA / 2 M). A right candidate
exceeds it with a probability of about ALPHA.

Where each element of the reference takes one of two values (dropped or kept), a candidate's elements must be one of the
two. The tolerance decides that.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Mapping, Sequence

import torch

from kgen.evaluator.correctness.tolerance import TINY, Expected, as_matrix, as_real, row
from kgen.protocol import Accuracy

EXACT = 8  #: runs of the reference in float64
MANY, FEW = 64, 16  #: runs of the reference in float32, to judge many runs of a candidate or one
ALPHA = 1e-7  #: probability of refusing a right candidate
MOST_ELEMENTS = 1 << 18  #: of a tensor that are read: whole rows, evenly spaced
ENOUGH = 256  #: elements with weight; one run with fewer elements shows nothing
_MOST_LINES = 256  #: rows and columns that are compared with each other
_NEAR, _FAR = 0.1, 0.5  #: shares of the mean distance: of two runs of the same numbers, at most; of others, at least
_FLOOR = 1e-3  #: of a statistic's standard error, in units of the reference's spread
_LEAST = 3e-5  #: share of a row's root mean square; a smaller spread may be rounding
_SAME, _SAME_SINGLE = 1e-12, 1e-5  #: relative differences of equal values in float64 and float32
_WHOLE = ("mean", "mean square")  #: statistics that one run alone is judged by

Statistics = Mapping[str, torch.Tensor]  #: by name, (runs, number of values in each run)


@dataclass(frozen=True)
class TwoValues:
    """The two values of each element, such as dropped and kept, with the tolerance of the larger."""

    low: torch.Tensor
    high: torch.Tensor
    known: torch.Tensor  # where both were seen
    expected: Expected

    @classmethod
    def of(cls, exact: torch.Tensor, eager: torch.Tensor, tolerance: torch.Tensor) -> "TwoValues | None":
        """From runs in float64 and float32 (runs, rows, columns); ``None`` if a run has a third value. If one value is
        zero wherever both were seen, it counts as zero everywhere."""
        low, high = exact.amin(0), exact.amax(0)
        known = high - low > tolerance
        if bool(((exact - low > tolerance) & (high - exact > tolerance)).any()) or not bool(known.any()):
            return None
        if not bool(torch.minimum(low.abs(), high.abs())[known].any()):
            low, high = low.clamp(max=0.0), high.clamp(min=0.0)
            known = low != high
        larger = torch.where(high.abs() > low.abs(), high, low)
        errors = cls(low, high, known, Expected("", larger, None)).off(eager).abs().amax(0)  # none where it is dropped
        return cls(low, high, known, Expected.begun("", larger, larger + errors).settle())

    def off(self, values: torch.Tensor) -> torch.Tensor:
        """The distance of each element from the nearer of its two values."""
        nearer = torch.where((values - self.low).abs() < (values - self.high).abs(), self.low, self.high)
        return (values - nearer).masked_fill_(~self.known, 0.0)


@dataclass(frozen=True)
class Spread:
    """The distribution of a random tensor in one test case, from the reference's own runs."""

    centre: torch.Tensor  # (rows, columns) float64
    scale: torch.Tensor  # (rows, 1)
    finite: torch.Tensor  # (rows, columns): finite in every run of the reference
    own: Statistics
    far: float  # the square distance of two runs of the reference, on average; 0 if some are near each other
    two: TwoValues | None  # None if an element takes more

    @classmethod
    def of(cls, exact: Sequence[torch.Tensor], eager: Sequence[torch.Tensor]) -> "Spread | None":
        """From :func:`sampled` runs in float64 and float32 under different seeds; ``None`` if nothing is random."""
        values, others = (torch.stack([x.double() for x in runs]) for runs in (exact, eager))
        finite = torch.isfinite(values).all(0) & torch.isfinite(others).all(0)
        for runs in (values, others):
            runs.masked_fill_(~finite, 0.0)
        size = values.square().mean((0, 2)).sqrt()[:, None]
        if not any(
            bool((runs.amax(0) - runs.amin(0) > tolerance * size).any())
            for runs, tolerance in ((values, _SAME), (others, _SAME_SINGLE))
        ):
            return None
        spread = values.var(0).mean(1, keepdim=True).sqrt()
        typical = (spread / (size + TINY)).clamp_(max=1.0).square_().mean().sqrt().clamp_(min=_LEAST)
        centre, scale = values.mean(0), torch.maximum(spread, typical * size) + TINY
        deviations = (others - centre) / scale
        apart = torch.pdist(deviations.flatten(1)).square()
        far = float(apart.mean()) if apart.min() > _FAR * apart.mean() else 0.0
        return cls(centre, scale, finite, _statistics(deviations), far, TwoValues.of(values, others, _SAME * size))

    def judge(self, runs: Sequence[torch.Tensor], accuracy: Accuracy) -> dict[str, Any]:
        """Judge :func:`sampled` runs of a candidate, by all statistics; one run alone by those of the whole."""
        values = torch.stack([x.double() for x in runs])
        if bad := int((~torch.isfinite(values) & self.finite).sum()):
            return row(ok=False, used=float("inf"), note=f"{bad} elements are not finite where PyTorch's are")
        values.masked_fill_(~self.finite, 0.0)
        figures = row(ok=True)
        if self.two is not None:
            kept = (self.two.expected.exact + off for off in self.two.off(values))
            figures = worst([self.two.expected.judge(value, accuracy) for value in kept])
            if not figures["ok"]:
                return figures | {"note": f"kept elements are wrong: {figures['used']:.3g} x the error that is allowed"}
        deviations = (values - self.centre) / self.scale
        if self._are_near(deviations):
            note = f"of {len(runs)} calls, two draw the same numbers"
            return figures | {"ok": False, "used": float("inf"), "note": note}
        if len(runs) == 1 and self._counting() < ENOUGH:
            return figures | {"note": "too few elements to judge the moments of one run"}
        mine = _statistics(deviations)
        compared = {name: _z(name, mine[name], self.own[name]) for name in (mine if len(runs) > 1 else _WHOLE)}
        largest = {name: float(z.max()) for name, z in compared.items() if z.numel()}
        name = max(largest, key=largest.__getitem__)
        allowed = bound(sum(z.numel() for z in compared.values()))
        note = (
            f"moments of {len(runs)} calls: {name} is {largest[name]:.3g} deviations from PyTorch's, "
            f"{allowed:.3g} allowed"
        )
        used = largest[name] / allowed
        return figures | {"ok": used <= 1.0, "used": max(used, figures["used"] or 0.0), "note": note}

    def same_numbers(self, run: torch.Tensor, known: torch.Tensor) -> bool:
        """Whether a candidate's ``run`` drew the reference's numbers, which gave ``known`` under the same seed."""
        both = torch.stack([run.double(), known.double()]).masked_fill_(~self.finite, 0.0)
        return self._are_near((both - self.centre) / self.scale)

    def _are_near(self, deviations: torch.Tensor) -> bool:
        return len(deviations) > 1 and bool((torch.pdist(deviations.flatten(1)).square() < _NEAR * self.far).any())

    def _counting(self) -> float:
        """How many elements carry the weight of the whole, with rows of equal weight."""
        squares = self.centre.square()
        rows = squares.sum(1)
        return float((rows.square() / (squares.square().sum(1) + TINY)).nan_to_num_(0.0).sum())


def sampled(value: torch.Tensor) -> torch.Tensor:
    """A tensor as rows by columns; of a large one, evenly spaced rows."""
    matrix = as_matrix(as_real(value))
    number = max(1, min(len(matrix), MOST_ELEMENTS // max(matrix.shape[1], 1)))
    return matrix[torch.arange(number, device=matrix.device) * len(matrix) // number]


def worst(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return max(rows, key=lambda figures: (not figures["ok"], figures["used"] or 0.0))


def bound(number: int) -> float:
    """The largest of ``number`` z that a right candidate reaches, except with probability :data:`ALPHA`."""
    return NormalDist().inv_cdf(1 - ALPHA / (2 * number))


def _statistics(deviations: torch.Tensor) -> Statistics:
    """The statistics of each run (runs, rows, columns). A mask that rows or columns share shows in the spread of their
    means, and behind a contraction in their likeness."""
    found = {}
    for name, values in zip(_WHOLE, (deviations, deviations.square())):
        found |= {
            name: values.mean((1, 2))[:, None],
            f"{name} of a row": values.mean(2),
            f"{name} of a column": values.mean(1),
        }
    few = deviations[:, :_MOST_LINES, :_MOST_LINES]
    for lines, runs, length in (("row", few, deviations.shape[2]), ("column", few.mT, deviations.shape[1])):
        found[f"spread of the {lines}s' means"] = found[f"mean of a {lines}"].square().mean(1, keepdim=True) * length
        found[f"likeness of {lines}s"] = _likeness(runs)[:, None]
    return found


def _likeness(runs: torch.Tensor) -> torch.Tensor:
    """For each run (runs, rows, columns), how well the products of its rows agree with those of the other runs."""
    products = (runs @ runs.mT).tril(-1).flatten(1)
    others = (products.sum(0) - products) / max(len(runs) - 1, 1)
    return (products * others).sum(1) / (runs.shape[2] * max(runs.shape[1], 2))


def _z(name: str, mine: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Student's t of the difference of two samples' means (along the first dimension), pooled, as a normal deviate. A
    likeness is made of two runs each, and has twice the error of independent values (jackknife of a U-statistic)."""
    n, m = len(mine), len(theirs)
    freedom = n + m - 2
    variance = (n * mine.var(0, correction=0) + m * theirs.var(0, correction=0)) / freedom
    error = (variance * (1 / n + 1 / m)).sqrt().clamp(min=_FLOOR) * (2 if name.startswith("likeness") else 1)
    t = (mine.mean(0) - theirs.mean(0)) / error
    return (8 * freedom + 1) / (8 * freedom + 3) * (freedom * torch.log1p(t.square() / freedom)).sqrt()
