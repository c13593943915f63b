"""Candidates that draw their own random numbers: judged by moments, not by values.

A tensor is seen as rows (along the last dimension) by columns. A few runs of the reference in float64 give the *centre*
of each element and the *scale* of each row. Deviations (y - centre) / scale of the reference's float32 runs and of a
right candidate's runs then have the same distribution, whatever the operator is. So each statistic of :data:`ELEMENTS`,
:data:`TOGETHER` and :data:`ALWAYS` has one value for each run, on either side. Student's t for two samples of one
variance compares them. It becomes a normal deviate z (Wallace 1959). The largest of M statistics may reach the bound of
Bonferroni, z <= Phi^-1(1 - ALPHA / 2 M). A right candidate exceeds it with a probability of about ALPHA.

Where each element of the reference takes one of two values (dropped or kept), a candidate's elements must be one of the
two. The tolerance decides that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Callable, Mapping, Sequence

import torch

from kgen.evaluator.correctness.tolerance import TINY, Expected, as_matrix, as_real
from kgen.evaluator.protocol import Accuracy

ALPHA = 1e-7  #: probability of refusing a right candidate
FLOOR = 1e-3  #: of a statistic's standard error, in units of the reference's spread
ERRORS = 300.0  #: times eager's errors; a row's scale is at least that: errors are no random numbers
NO_ZERO = 1e-7  #: share of a row's root mean square; smaller values count as zeros
ENOUGH = 256  #: elements with weight; one run of fewer shows nothing
MOST_ELEMENTS = 1 << 20  #: of a tensor that are read: whole rows, evenly spaced
MOST_PAIRED = 1 << 18  #: of those where runs are compared with each other
ALIKE, UNLIKE = 0.9, 0.5  #: likeness of two runs of the same numbers, at least; of other numbers, at most
MOST_LINES = 256  #: rows and columns that are compared with each other
SCATTER = 4.0  #: standard deviation of a number of zeros that varies from run to run
_SAME, _SAME_SINGLE = 1e-12, 1e-5  #: relative differences of equal values in float64 and float32

#: Averages over the whole, each row and each column, from deviations and a mask of zeros.
ELEMENTS: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mean": lambda d, zero: d,
    "second moment": lambda d, zero: d.square(),
    "share of zeros": lambda d, zero: zero,
}

#: A mask that rows or columns share shows here.
TOGETHER: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "spread of the columns' means": lambda d: d.mean(0).square().mean() * d.shape[0],
    "spread of the rows' means": lambda d: d.mean(1).square().mean() * d.shape[1],
}

#: The same behind a contraction, common to all runs (runs, rows, columns).
ALWAYS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "likeness of rows": lambda runs: _alike(runs[:, :MOST_LINES, :MOST_LINES]),
    "likeness of columns": lambda runs: _alike(runs[:, :MOST_LINES, :MOST_LINES].mT),
}

#: Names of the statistics over the whole, in order.
_WHOLE = (*(f"{kind} of the whole" for kind in ELEMENTS), *TOGETHER)


@dataclass(frozen=True)
class Runs:
    """How many runs of the reference are taken, in float64 and in float32."""

    exact: int
    eager: int


MANY = Runs(16, 64)  #: to judge many runs of a candidate
FEW = Runs(4, 12)  #: to judge one


@dataclass(frozen=True)
class Statistics:
    """Statistics of each run: over the whole tensor (runs, kinds), and of each row and column."""

    whole: torch.Tensor
    rows: torch.Tensor  # (runs, kinds, rows)
    columns: torch.Tensor  # (runs, kinds, columns)
    always: torch.Tensor  # (runs, kinds of ALWAYS)


@dataclass(frozen=True)
class Comparison:
    """Whether values are like the reference's: the largest z as a share of its bound, and its statistic."""

    ok: bool
    used: float
    note: str
    same_numbers: bool = False  # they are the reference's: values decide


@dataclass(frozen=True)
class TwoValues:
    """The two values of each element, such as dropped and kept, with the tolerance of the larger."""

    low: torch.Tensor
    high: torch.Tensor
    known: torch.Tensor  # where both were seen
    expected: Expected

    @classmethod
    def of(
        cls, exact: torch.Tensor, eager: Sequence[torch.Tensor], tolerance: torch.Tensor
    ) -> TwoValues | None:
        """From runs in float64 (runs, rows, columns) and float32; ``None`` if a run has a third value. If one value is
        zero wherever both were seen, it counts as zero everywhere."""
        low, high = exact.amin(0), exact.amax(0)
        if not bool(((exact - low <= tolerance) | (high - exact <= tolerance)).all()):
            return None
        known = high - low > tolerance
        if not bool(known.any()):
            return None
        if bool((torch.minimum(low.abs(), high.abs())[known] == 0).all()):
            low, high = low.clamp(max=0.0), high.clamp(min=0.0)
            known = low != high
        larger = torch.where(high.abs() > low.abs(), high, low)
        draft = cls(low, high, known, Expected("", larger, None))
        errors = torch.stack([draft._off(x) for x in eager])
        error = errors.gather(0, errors.abs().argmax(0, keepdim=True))[0]  # dropped elements have no error
        return replace(draft, expected=Expected.within("", larger, larger + error, []))

    def judge(self, value: torch.Tensor, accuracy: Accuracy) -> dict[str, Any]:
        return self.expected.judge(self.expected.exact + self._off(value), accuracy)

    def _off(self, value: torch.Tensor) -> torch.Tensor:
        """The distance of each element from the nearer of its two values."""
        nearer = torch.where((value - self.low).abs() < (value - self.high).abs(), self.low, self.high)
        return (value - nearer).masked_fill_(~self.known, 0.0)


@dataclass(frozen=True)
class Spread:
    """The distribution of a random tensor in one test case, from the reference's own runs."""

    centre: torch.Tensor  # (rows, columns) float64
    scale: torch.Tensor  # (rows, 1)
    size: torch.Tensor  # (rows, 1) root mean square
    finite: torch.Tensor  # (rows, columns): finite in every run of the reference
    two: TwoValues | None  # None if an element takes more
    own: Statistics
    distinct: bool  # whether no two runs of the reference are the same
    apart: float  # mean square distance of two runs of the reference
    unlike: bool  # whether no two runs of the reference are alike

    @classmethod
    def of(cls, exact: Sequence[torch.Tensor], eager: Sequence[torch.Tensor], expected: Expected) -> Spread | None:
        """From :func:`sampled` runs in float64 and float32 under different seeds; ``None`` if nothing is random."""
        values = torch.stack([x.double() for x in exact])
        others = [x.double() for x in eager]
        finite = torch.isfinite(values).all(0) & torch.stack([torch.isfinite(x) for x in others]).all(0)
        values.masked_fill_(~finite, 0.0)
        centre = values.mean(0)
        size = values.square().mean((0, 2)).sqrt()[:, None]
        if not _varies(values, _SAME * size) and not _varies(torch.stack(others), _SAME_SINGLE * size, finite):
            return None
        spread = values.var(0).mean(1).sqrt()[:, None]
        error = size * 0
        if expected.reference_error is not None:
            error = expected.reference_error.rows[_evenly(as_matrix(expected.exact), MOST_ELEMENTS)][:, None]
        typical = (spread / (size + TINY)).clamp_(max=1.0).square_().mean().sqrt()
        scale = torch.maximum(torch.maximum(spread, typical * size), ERRORS * error) + TINY
        two = TwoValues.of(values, [x.masked_fill(~finite, 0.0) for x in others], _SAME * size)
        draft = cls(centre, scale, size, finite, two, Statistics(*(centre,) * 4), False, 0.0, False)
        deviations = [draft._deviations(x) for x in others]
        apart = _distances(deviations)
        return replace(
            draft, own=draft._statistics(others, deviations), apart=float(apart.mean()),
            unlike=float((1 - apart / apart.mean()).max()) < UNLIKE,
            distinct=not any(torch.equal(x, y) for i, x in enumerate(others) for y in others[:i]))

    def judge(self, runs: Sequence[torch.Tensor], known: torch.Tensor) -> Comparison:
        """Compare many runs. ``known`` is the reference's value under the seed of the first."""
        values = [sampled(x).double() for x in runs]
        if fault := self._not_finite(values):
            return fault
        deviations = [self._deviations(x) for x in values]
        its = self._deviations(sampled(known).double())
        if self.unlike and self._likeness([its, deviations[0]]) > ALIKE:
            return Comparison(False, float("inf"), "its random numbers are PyTorch's", same_numbers=True)
        if self.distinct and all(torch.equal(x, values[0]) for x in values):
            return Comparison(False, float("inf"), f"{len(runs)} calls draw the same numbers")
        if self.unlike and self._likeness(deviations) > ALIKE:
            return Comparison(False, float("inf"), f"two of {len(runs)} calls draw the same numbers")
        mine = self._statistics(values, deviations)
        if self._counts(self.own).std() > SCATTER and self._counts(mine).std() < 0.5 / len(runs):
            return Comparison(False, float("inf"), f"{len(runs)} calls drop the same number of elements")
        return _comparison(_compared(mine, self.own), len(runs))

    def judge_one(self, value: torch.Tensor) -> Comparison:
        """Compare one run by its statistics over the whole; it passes if too few elements have weight."""
        value = sampled(value).double()
        if fault := self._not_finite([value]):
            return fault
        if self._counting() < ENOUGH:
            return Comparison(True, 0.0, "too few elements to judge the moments of one run")
        mine = self._statistics([value], [self._deviations(value)])
        z = _z(mine.whole, self.own.whole)
        # A statistic that never varied in the reference has no spread.
        z = torch.where(self.own.whole.var(0) > 0, z, 0.0)[: len(ELEMENTS)]
        return _comparison(dict(zip(_WHOLE, z)), 1)

    def judge_kept(self, value: torch.Tensor, accuracy: Accuracy) -> dict[str, Any]:
        """Judge each element of one run against the nearer of its two values, if it has two."""
        if self.two is None:
            return dict.fromkeys(("rms", "maximum", "eager_rms", "eager_maximum", "ratio", "used")) | {
                "ok": True, "note": ""}
        return self.two.judge(sampled(value).double().masked_fill(~self.finite, 0.0), accuracy)

    def _deviations(self, value: torch.Tensor) -> torch.Tensor:
        return ((value - self.centre) / self.scale).masked_fill_(~self.finite, 0.0)

    def _zeros(self, value: torch.Tensor) -> torch.Tensor:
        return (value.abs() <= NO_ZERO * self.size).double()

    def _statistics(self, values: Sequence[torch.Tensor], deviations: Sequence[torch.Tensor]) -> Statistics:
        whole, rows, columns = [], [], []
        for x, d in zip(values, deviations):
            elements = [kind(d, self._zeros(x)) for kind in ELEMENTS.values()]
            rows.append(torch.stack([e.mean(1) for e in elements]))
            columns.append(torch.stack([e.mean(0) for e in elements]))
            whole.append(torch.stack([*rows[-1].mean(1), *(kind(d) for kind in TOGETHER.values())]))
        always = torch.stack([kind(torch.stack(list(deviations))) for kind in ALWAYS.values()], 1)
        return Statistics(torch.stack(whole), torch.stack(rows), torch.stack(columns), always)

    def _likeness(self, deviations: Sequence[torch.Tensor]) -> float:
        """That of the two most alike of these runs: 1 if they are equal, 0 if they differ as much as the reference's."""
        return float((1 - _distances(deviations) / self.apart).max())

    def _not_finite(self, values: Sequence[torch.Tensor]) -> Comparison | None:
        bad = sum(int((~torch.isfinite(x) & self.finite).sum()) for x in values)
        return Comparison(False, float("inf"), f"{bad} elements are not finite where PyTorch's are") if bad else None

    def _counts(self, found: Statistics) -> torch.Tensor:
        """The number of zeros in each run."""
        return found.whole[:, list(ELEMENTS).index("share of zeros")] * self.centre.numel()

    def _counting(self) -> float:
        """How many elements carry the weight of the whole, with rows of equal weight."""
        squares = self.centre.square()
        rows = squares.sum(1)
        return float((rows.square() / (squares.square().sum(1) + TINY)).nan_to_num_(0.0).sum())


def sampled(value: torch.Tensor) -> torch.Tensor:
    """A tensor as rows by columns; of a large one, evenly spaced rows."""
    matrix = as_matrix(as_real(value))
    picked = _evenly(matrix, MOST_ELEMENTS)
    return matrix if len(picked) == len(matrix) else matrix[picked]


def spreads(
    exact: Sequence[Sequence[torch.Tensor]], eager: Sequence[Sequence[torch.Tensor]], expected: Sequence[Expected]
) -> list[Spread | None]:
    """The spread of each of ``expected``, from the sampled tensors of each run in the same order."""
    return [
        Spread.of([run[i] for run in exact], [run[i] for run in eager], one) if not one.skipped else None
        for i, one in enumerate(expected)
    ]


def judge_run(spread: Spread | None, expected: Expected, value: torch.Tensor, accuracy: Accuracy) -> dict[str, Any]:
    """One run of a candidate with its own random numbers: the fields of ``CaseErrors`` but two."""
    if spread is None:
        return expected.judge(value, accuracy)
    row = spread.judge_kept(value, accuracy)
    if not row["ok"]:
        return row
    found = spread.judge_one(value)
    return row | {"ok": found.ok, "used": max(found.used, row["used"] or 0.0), "note": found.note}


def judge_runs(
    spread: Spread, expected: Expected, values: Sequence[torch.Tensor], accuracy: Accuracy
) -> tuple[dict[str, Any], bool]:
    """Many runs, the first under the seed of ``expected``: the worst row, and whether the candidate draws the
    reference's numbers."""
    found = spread.judge(values, expected.exact)
    worst = worst_row([spread.judge_kept(value, accuracy) for value in values])
    if found.ok and not worst["ok"]:
        return worst | {"note": f"kept elements are wrong: {_excess(worst)}"}, False
    used = max(found.used, worst["used"] or 0.0)
    return worst | {"ok": found.ok, "used": used, "note": found.note}, found.same_numbers


def worst_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return max(rows, key=lambda row: (not row["ok"], row["used"] or 0.0))


def _excess(row: dict[str, Any]) -> str:
    return row["note"] or f"{row['used']:.3g} x the error that is allowed"


def bound(number: int) -> float:
    """The largest of ``number`` z that a right candidate reaches, except with probability :data:`ALPHA`."""
    return NormalDist().inv_cdf(1 - ALPHA / (2 * number))


def _z(mine: torch.Tensor, theirs: torch.Tensor, share: int = 1) -> torch.Tensor:
    """Student's t of the difference of two samples' means (along the first dimension), pooled, as a normal deviate.
    Values that are made of ``share`` runs each have as many times the error of independent ones (jackknife of a
    U-statistic)."""
    n, m = len(mine), len(theirs)
    freedom = n + m - 2
    variance = (n * mine.var(0, correction=0) + m * theirs.var(0, correction=0)) / freedom
    error = share * (variance * (1 / n + 1 / m)).sqrt().clamp(min=FLOOR)
    t = (mine.mean(0) - theirs.mean(0)) / error
    return (8 * freedom + 1) / (8 * freedom + 3) * (freedom * torch.log1p(t.square() / freedom)).sqrt()


def _compared(mine: Statistics, own: Statistics) -> dict[str, torch.Tensor]:
    """The z of each statistic by its name."""
    found = dict(zip(_WHOLE, _z(mine.whole, own.whole)))
    for place, a, b in (("row", mine.rows, own.rows), ("column", mine.columns, own.columns)):
        found |= dict(zip((f"{kind} of a {place}" for kind in ELEMENTS), _z(a, b)))
    return found | dict(zip(ALWAYS, _z(mine.always, own.always, share=2)))


def _comparison(found: Mapping[str, torch.Tensor], runs: int) -> Comparison:
    largest = {name: float(z.max()) for name, z in found.items() if z.numel()}
    worst = max(largest, key=largest.__getitem__)
    allowed = bound(sum(z.numel() for z in found.values()))
    called = "one call" if runs == 1 else f"{runs} calls"
    note = f"moments of {called}: {worst} is {largest[worst]:.3g} deviations from PyTorch's, {allowed:.3g} allowed"
    return Comparison(largest[worst] <= allowed, largest[worst] / allowed, note)


def _distances(deviations: Sequence[torch.Tensor]) -> torch.Tensor:
    """The square distance of each pair of runs, (pairs,)."""
    return torch.pdist(torch.stack([d[_evenly(d, MOST_PAIRED)].flatten() for d in deviations])).square()


def _evenly(matrix: torch.Tensor, most: int) -> torch.Tensor:
    """Indices of evenly spaced rows that hold at most ``most`` elements (at least one row)."""
    rows, columns = matrix.shape
    number = max(1, min(rows, most // max(columns, 1)))
    return torch.arange(number, device=matrix.device) * rows // number


def _varies(values: torch.Tensor, tolerance: torch.Tensor, finite: torch.Tensor | None = None) -> bool:
    difference = values.amax(0) - values.amin(0)
    differs = difference > tolerance
    return bool((differs if finite is None else differs & finite).any())


def _alike(runs: torch.Tensor) -> torch.Tensor:
    """For each run (runs, rows, columns), how well the products of its rows agree with those of the other runs."""
    products = (runs @ runs.mT).tril(-1).flatten(1)
    others = (products.sum(0) - products) / max(len(runs) - 1, 1)
    return (products * others).sum(1) / (runs.shape[2] * max(runs.shape[1], 2))
