"""Random operators whose numbers are a candidate's own: judged by what its values are like, not by the values.

A tensor is seen as rows (along the last dimension) by columns. A few runs of the reference in float64 give the *centre*
of each element and the *scale* of each row, and serve for nothing else. With them, deviations (y - centre) / scale of
the reference's float32 runs and of a right candidate's runs are drawn from the same distribution, whatever the operator
is, and independently from run to run. So each statistic of :data:`ELEMENTS` and :data:`TOGETHER` is a sample of as many
values as there are runs, on either side, and the two are compared by Student's t for two samples of one variance. As a
normal deviate z (Wallace 1959), the largest of M statistics may reach the bound of Bonferroni,

    z <= Phi^-1(1 - ALPHA / 2 M),

which a right candidate exceeds with a probability of about ALPHA.

Where each element of the reference takes one of two values only (dropped or kept), a candidate's elements must be one
of the two within the accuracy gate: that settles their deterministic part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Callable, Mapping, Sequence

import torch

from kgen.evaluator.correctness.tolerance import TINY, Expected, as_matrix, as_real
from kgen.evaluator.protocol import Accuracy

RUNS = 16  #: of the candidate
ALPHA = 1e-7
FLOOR = 1e-3  #: of a statistic's standard error; deviations are in units of the reference's own spread
ERRORS = 300.0  #: a row's scale is at least so many of eager's errors, which are no random numbers
NO_ZERO = 1e-7  #: smaller values, as shares of their row's root mean square, count as zeros
ENOUGH = 256  #: elements that count: one run of fewer tells nothing
MOST_ELEMENTS = 1 << 20  #: of a tensor that are looked at: whole rows, evenly spaced
MOST_PAIRED = 1 << 18  #: of these where neighbours or runs are compared
REPEATED, PLACES = 0.2, 1024  #: more correlated than PyTorch's, zeros are in the same places; of so many, at least
MOST_LINES = 256  #: rows and columns that are compared with each other, the first ones
ALIKE, UNLIKE = 0.9, 0.5  #: likeness of two runs of the same numbers at least, of two of others at most
SCATTER = 4.0  #: standard deviation of a number of zeros that is not the same in all runs by chance
EVENTS = 16  #: elements that share the weight of what is random in a run; fewer fall together by chance
_SAME, _SAME_SINGLE = 1e-12, 1e-5  #: relative differences of values that float64 and float32 make equal

#: What is averaged over the whole, over each row and over each column, from deviations and what is zero.
ELEMENTS: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mean": lambda d, zero: d,
    "second moment": lambda d, zero: d.square(),
    "share of zeros": lambda d, zero: zero,
}

#: How the elements of a run hang together: numbers that serve twice show here. Taken of the deviations, and of the
#: deviations away from zero, which share a sign where elements are dropped.
TOGETHER: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "fourth moment": lambda d: d.square().square().mean(),
    "spread of the columns' means": lambda d: d.mean(0).square().mean() * d.shape[0],
    "spread of the rows' means": lambda d: d.mean(1).square().mean() * d.shape[1],
    "product of neighbours in a row": lambda d: _mean(d[:, 1:] * d[:, :-1]),
    "product of neighbours in a column": lambda d: _mean(d[1:] * d[:-1]),
}

#: What every run has in common, from all of them (runs, rows, columns): a mask that rows or columns share, wherever it
#: is, and an error that is not random, of either sign.
ALWAYS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "likeness of rows": lambda runs: _alike(runs[:, :MOST_LINES, :MOST_LINES]),
    "likeness of columns": lambda runs: _alike(runs[:, :MOST_LINES, :MOST_LINES].mT),
    "likeness of calls": lambda runs: _with_others(runs.flatten(1)),
}

#: Names of a run's statistics over the whole, in their order.
_WHOLE = (*(f"{kind} of the whole" for kind in ELEMENTS), *TOGETHER, *(f"{kind}, away from zero" for kind in TOGETHER))


@dataclass(frozen=True)
class Runs:
    """How many runs of the reference are taken, in float64 and in float32."""

    exact: int
    eager: int


MANY = Runs(16, 64)  #: where many runs of the candidate are judged
FEW = Runs(4, 12)  #: where one is


@dataclass(frozen=True)
class Statistics:
    """Of each run: over the whole tensor (runs, kinds), and the kinds of :data:`ELEMENTS` for each row and column."""

    whole: torch.Tensor
    rows: torch.Tensor  # (runs, kinds, rows)
    columns: torch.Tensor  # (runs, kinds, columns)
    always: torch.Tensor  # (runs, kinds of ALWAYS)


@dataclass(frozen=True)
class Verdict:
    """Whether values are like the reference's; the largest z as a share of its bound, and where it is."""

    ok: bool
    used: float
    note: str
    same_numbers: bool = False  # they are the reference's own, so that values decide


@dataclass(frozen=True)
class TwoValues:
    """The two values that each element takes, such as dropped and kept, and what error is allowed of the larger."""

    low: torch.Tensor
    high: torch.Tensor
    known: torch.Tensor  # where both are
    gate: Expected

    @classmethod
    def of(
        cls, exact: torch.Tensor, eager: Sequence[torch.Tensor], tolerance: torch.Tensor
    ) -> TwoValues | None:
        """From runs in float64 (runs, rows, columns) and float32; ``None`` where a run has a third value.

        Where one of the two is zero wherever both were seen, it is so everywhere: what was never dropped may be.
        """
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
        error = errors.gather(0, errors.abs().argmax(0, keepdim=True))[0]  # of what was dropped, eager has none
        return replace(draft, gate=Expected.within("", larger, larger + error, []))

    def judge(self, value: torch.Tensor, accuracy: Accuracy) -> dict[str, Any]:
        return self.gate.judge(self.gate.exact + self._off(value), accuracy)

    def _off(self, value: torch.Tensor) -> torch.Tensor:
        """How far each element is from the nearer of its two values."""
        nearer = torch.where((value - self.low).abs() < (value - self.high).abs(), self.low, self.high)
        return (value - nearer).masked_fill_(~self.known, 0.0)


@dataclass(frozen=True)
class Spread:
    """What a random tensor's values are like under one regime, from the reference's own runs."""

    centre: torch.Tensor  # (rows, columns) float64
    scale: torch.Tensor  # (rows, 1)
    size: torch.Tensor  # (rows, 1) root mean square
    finite: torch.Tensor  # (rows, columns): what every run of the reference has
    two: TwoValues | None  # None where an element takes more
    own: Statistics
    distinct: bool  # whether no two runs of the reference are the same
    apart: float  # mean square of the difference of two runs of the reference; 1 less its share of it is their likeness
    unlike: bool  # whether no two runs of the reference are alike, nor could be by chance

    @classmethod
    def of(cls, exact: Sequence[torch.Tensor], eager: Sequence[torch.Tensor], leaf: Expected) -> Spread | None:
        """From runs in float64 and runs in float32, each under a seed of its own and :func:`sampled`; ``None`` where
        nothing is random."""
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
        if leaf.anchor is not None:
            error = leaf.anchor.rows[_evenly(as_matrix(leaf.exact), MOST_ELEMENTS)][:, None]
        typical = (spread / (size + TINY)).clamp_(max=1.0).square_().mean().sqrt()
        scale = torch.maximum(torch.maximum(spread, typical * size), ERRORS * error) + TINY
        two = TwoValues.of(values, [x.masked_fill(~finite, 0.0) for x in others], _SAME * size)
        draft = cls(centre, scale, size, finite, two, Statistics(*(centre,) * 4), False, 0.0, False)
        deviations = [draft._deviations(x) for x in others]
        own, apart = draft._statistics(others, deviations), _distances(deviations)
        return replace(
            draft, own=own, distinct=not any(torch.equal(x, y) for i, x in enumerate(others) for y in others[:i]),
            apart=float(apart.mean()),
            unlike=_events(deviations) >= EVENTS and float((1 - apart / apart.mean()).max()) < UNLIKE)

    def judge(self, runs: Sequence[torch.Tensor], known: torch.Tensor) -> Verdict:
        """Compare many runs. ``known`` is the reference's value under the seed that the first of them had too."""
        values = [sampled(x).double() for x in runs]
        if fault := self._not_finite(values):
            return fault
        deviations = [self._deviations(x) for x in values]
        twin = self._deviations(sampled(known).double())
        if self.unlike and torch.cosine_similarity(deviations[0].flatten(), twin.flatten(), dim=0) > ALIKE:
            return Verdict(False, float("inf"), "its random numbers are PyTorch's", same_numbers=True)
        if self.distinct and all(torch.equal(x, values[0]) for x in values):
            return Verdict(False, float("inf"), f"{len(runs)} calls draw the same numbers")
        if self.unlike and float((1 - _distances(deviations) / self.apart).max()) > ALIKE:
            return Verdict(False, float("inf"), f"two of {len(runs)} calls draw the same numbers")
        mine = self._statistics(values, deviations)
        if self._counts(self.own).std() > SCATTER and self._counts(mine).std() < 0.5 / len(runs):
            return Verdict(False, float("inf"), f"{len(runs)} calls drop the same number of elements")
        return _verdict(_compared(mine, self.own), len(runs))

    def judge_one(self, value: torch.Tensor) -> Verdict:
        """Compare one run, by its statistics over the whole; too few elements that count are let through."""
        value = sampled(value).double()
        if fault := self._not_finite([value]):
            return fault
        if self._counting() < ENOUGH:
            return Verdict(True, 0.0, "too few elements to judge the moments of one run")
        mine = self._statistics([value], [self._deviations(value)])
        z = _z(mine.whole, self.own.whole)
        # What never varied in the reference has no spread to compare one run with.
        z = torch.where(self.own.whole.var(0) > 0, z, 0.0)[: len(ELEMENTS)]
        return _verdict(dict(zip(_WHOLE, z)), 1)

    def judge_kept(self, value: torch.Tensor, accuracy: Accuracy) -> dict[str, Any]:
        """Each element of one run against the nearer of its two values; nothing is said where there are more."""
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
        some = _evenly(self.centre, MOST_PAIRED)
        for x, d in zip(values, deviations):
            elements = [kind(d, self._zeros(x)) for kind in ELEMENTS.values()]
            rows.append(torch.stack([e.mean(1) for e in elements]))
            columns.append(torch.stack([e.mean(0) for e in elements]))
            away = d * self.centre.sign()
            together = [kind(y[some]) for y in (d, away) for kind in TOGETHER.values()]
            whole.append(torch.stack([*rows[-1].mean(1), *together]))
        runs = torch.stack(list(deviations))
        always = torch.stack([kind(runs) for kind in ALWAYS.values()], 1)
        return Statistics(torch.stack(whole), torch.stack(rows), torch.stack(columns), always)

    def _not_finite(self, values: Sequence[torch.Tensor]) -> Verdict | None:
        bad = sum(int((~torch.isfinite(x) & self.finite).sum()) for x in values)
        return Verdict(False, float("inf"), f"{bad} elements are not finite where PyTorch's are") if bad else None

    def _counts(self, found: Statistics) -> torch.Tensor:
        """How many elements of each run are zero."""
        return found.whole[:, list(ELEMENTS).index("share of zeros")] * self.centre.numel()

    def _counting(self) -> float:
        """How many elements share the weight of the whole, each row counted alike."""
        squares = self.centre.square()
        rows = squares.sum(1)
        return float((rows.square() / (squares.square().sum(1) + TINY)).nan_to_num_(0.0).sum())


def sampled(value: torch.Tensor) -> torch.Tensor:
    """What is looked at of a tensor, as rows by columns: all of it, or rows evenly spaced where it is large."""
    matrix = as_matrix(as_real(value))
    picked = _evenly(matrix, MOST_ELEMENTS)
    return matrix if len(picked) == len(matrix) else matrix[picked]


def spreads(
    exact: Sequence[Sequence[torch.Tensor]], eager: Sequence[Sequence[torch.Tensor]], leaves: Sequence[Expected]
) -> list[Spread | None]:
    """The spread of each of ``leaves``, from the sampled tensors of each run in the same order."""
    return [
        Spread.of([run[i] for run in exact], [run[i] for run in eager], leaf) if not leaf.skipped else None
        for i, leaf in enumerate(leaves)
    ]


def judge_run(spread: Spread | None, leaf: Expected, value: torch.Tensor, accuracy: Accuracy) -> dict[str, Any]:
    """One run of a candidate with random numbers of its own: the fields of ``RegimeErrors`` but two."""
    if spread is None:
        return leaf.judge(value, accuracy)
    row = spread.judge_kept(value, accuracy)
    if not row["ok"]:
        return row
    verdict = spread.judge_one(value)
    return row | {"ok": verdict.ok, "used": max(verdict.used, row["used"] or 0.0), "note": verdict.note}


def judge_runs(
    spread: Spread, leaf: Expected, values: Sequence[torch.Tensor], accuracy: Accuracy
) -> tuple[dict[str, Any], bool]:
    """Many runs, the first under the seed of ``leaf``: the row that says most, and whether the candidate draws the
    reference's own numbers."""
    verdict = spread.judge(values, leaf.exact)
    worst = worst_row([spread.judge_kept(value, accuracy) for value in values])
    if verdict.ok and not worst["ok"]:
        return worst | {"note": f"what is kept is wrong: {_excess(worst)}"}, False
    used = max(verdict.used, worst["used"] or 0.0)
    return worst | {"ok": verdict.ok, "used": used, "note": verdict.note}, verdict.same_numbers


def is_repeated(before: Sequence[torch.Tensor], now: Sequence[torch.Tensor]) -> bool:
    """Whether the first of two truth values, a candidate's, are more like themselves from one call to another than the
    second, PyTorch's: what is dropped of each is drawn anew."""
    mine, its = (_correlation(a, b) for a, b in zip(before, now))
    return mine > its + REPEATED


def _correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    """Of the places where two are true; 0 where there are few places, or one is the same throughout."""
    if a.shape != b.shape or a.numel() < PLACES:
        return 0.0
    x, y = (part.double() - part.double().mean() for part in (a, b))
    size = float((x.square().mean() * y.square().mean()).sqrt())
    return float((x * y).mean()) / size if size else 0.0


def worst_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return max(rows, key=lambda row: (not row["ok"], row["used"] or 0.0))


def _excess(row: dict[str, Any]) -> str:
    return row["note"] or f"{row['used']:.3g} x the error that is allowed"


def bound(number: int) -> float:
    """The largest z of so many that a right candidate reaches, but for a probability of :data:`ALPHA`."""
    return NormalDist().inv_cdf(1 - ALPHA / (2 * number))


def _z(mine: torch.Tensor, theirs: torch.Tensor, share: int = 1) -> torch.Tensor:
    """Student's t of the difference of two samples' means (samples along the first dimension), pooled, as a normal
    deviate. ``share`` is how many runs each value is made of, one and the mean of the others: means of such values have
    as many times the error that independent ones have (the jackknife of a U-statistic)."""
    n, m = len(mine), len(theirs)
    freedom = n + m - 2
    variance = (n * mine.var(0, correction=0) + m * theirs.var(0, correction=0)) / freedom
    error = share * (variance * (1 / n + 1 / m)).sqrt().clamp(min=FLOOR)
    t = (mine.mean(0) - theirs.mean(0)) / error
    return (8 * freedom + 1) / (8 * freedom + 3) * (freedom * torch.log1p(t.square() / freedom)).sqrt()


def _compared(mine: Statistics, own: Statistics) -> dict[str, torch.Tensor]:
    """z of each statistic by its name."""
    found = dict(zip(_WHOLE, _z(mine.whole, own.whole)))
    for place, a, b in (("row", mine.rows, own.rows), ("column", mine.columns, own.columns)):
        found |= dict(zip((f"{kind} of a {place}" for kind in ELEMENTS), _z(a, b)))
    return found | dict(zip(ALWAYS, _z(mine.always, own.always, share=2)))


def _verdict(found: Mapping[str, torch.Tensor], runs: int) -> Verdict:
    largest = {name: float(z.max()) for name, z in found.items() if z.numel()}
    worst = max(largest, key=largest.__getitem__)
    allowed = bound(sum(z.numel() for z in found.values()))
    called = "one call" if runs == 1 else f"{runs} calls"
    note = f"moments of {called}: {worst} is {largest[worst]:.3g} deviations from PyTorch's, {allowed:.3g} allowed"
    return Verdict(largest[worst] <= allowed, largest[worst] / allowed, note)


def _distances(deviations: Sequence[torch.Tensor]) -> torch.Tensor:
    """The mean square of the difference of each two runs, (pairs,)."""
    runs = torch.stack([d[_evenly(d, MOST_PAIRED)].flatten() for d in deviations])
    products = runs @ runs.T
    squares = products.diagonal()
    first, second = torch.triu_indices(len(runs), len(runs), 1, device=runs.device)
    return (squares[first] + squares[second] - 2 * products[first, second]) / runs.shape[1]


def _events(deviations: Sequence[torch.Tensor]) -> float:
    """How many elements share the weight of what is random in a run: (sum x^2)^2 / sum x^4, over the runs."""
    runs = torch.stack([d[_evenly(d, MOST_PAIRED)] for d in deviations])
    squares = (runs - runs.mean(0)).square_()
    return float(squares.sum().square() / (squares.square().sum() * len(runs) + TINY))


def _evenly(matrix: torch.Tensor, most: int) -> torch.Tensor:
    """Indices of rows, evenly spaced, that hold ``most`` elements at most (one row at least)."""
    rows, columns = matrix.shape
    number = max(1, min(rows, most // max(columns, 1)))
    return torch.arange(number, device=matrix.device) * rows // number


def _varies(values: torch.Tensor, tolerance: torch.Tensor, finite: torch.Tensor | None = None) -> bool:
    difference = values.amax(0) - values.amin(0)
    differs = difference > tolerance
    return bool((differs if finite is None else differs & finite).any())


def _alike(runs: torch.Tensor) -> torch.Tensor:
    """For each of ``runs`` (runs, rows, columns), how well the products of its rows with each other agree with those
    of the other runs."""
    products = (runs @ runs.mT).tril(-1).flatten(1)
    return _with_others(products) * products.shape[1] / (runs.shape[2] * max(runs.shape[1], 2))


def _with_others(runs: torch.Tensor) -> torch.Tensor:
    """The mean product of each of ``runs`` (runs, elements) with the mean of the others."""
    others = (runs.sum(0) - runs) / max(len(runs) - 1, 1)
    return (runs * others).mean(1)


def _mean(x: torch.Tensor) -> torch.Tensor:
    return x.mean() if x.numel() else x.new_zeros(())
