"""The accuracy gate: error figures of a tensor against float64, and the allowances that eager PyTorch sets.

For the classes ``fp32`` and ``tf32`` a candidate's error is measured as root mean square and maximum over the whole
tensor, and as root mean square of each row (along the last dimension) and of each column. Each figure is allowed a
multiple of its *anchor*: the larger of eager PyTorch's error in the same place and of the error that a model with one
float32 rounding behind each operator makes there. The second anchor stands for where eager is right by luck, as it is
when a sum of equal terms cancels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations
from math import isfinite
from typing import Any, Sequence

import torch

from kgen.evaluator.protocol import KERNELBENCH_TOLERANCE, MAX_FACTOR, RMS_FACTOR, Accuracy
from kgen.evaluator.runtime.arena import is_inexact

EPSILON = 2.0**-23  #: of float32
LINE_FACTOR = 3.0  #: for a row or a column
LINE_ELEMENTS = 8  #: a shorter row or column is not judged alone: it may be small by cancellation
FEW_ELEMENTS = 1024  #: a tensor of fewer may be one sum, behind which errors of its terms vanish
ONE_OF_FEW, ONE_OF_MANY = 4.0, 10.0  #: how many times more is allowed where one error has all the weight
LUCKY = 16.0  #: the error of a line in which fewer elements count is a matter of luck
MOST_SCATTERED = 8.0  #: how many times more a line is allowed where errors scatter more than those of many elements
ONE_ERROR = 0.2  #: the squared cosine between two runs' errors of a row, from which on its elements share one
BY_CHANCE = 0.01  #: of rows whose elements do not, at most this part is taken for such
_COMPARED = 3  #: runs
_ENOUGH_LINES, _ENOUGH_OF_MANY = 32, 1 << 16  #: to see how their errors scatter
_ONE_SIGMA = torch.tensor([0.159, 0.841], dtype=torch.float64)  #: quantiles
_SAMPLE = 4096  #: elements that are looked at to see whether there are few different ones
NOISE_SCALE = 100.0  #: at most; a long sum makes errors so much larger than one rounding behind it
FLOOR_RMS, FLOOR_MAX = 2.0, 4.0  #: epsilons of float32, relative to the expected values
#: Of a type of lower precision, this part of its epsilon counts: rounding the other way is within the floor.
_COARSER = 4.0
#: What a timed output may differ from eager PyTorch's, in shares of what is allowed against float64. (Two that use all
#: of it on opposite sides, as no honest kernel does, would differ by 2.)
TIMED_FACTOR = 1.5
TIMED_LINE_FACTOR = 16.0  #: the same for rows and columns, whose errors are not known here: half of the work shows
#: Of what a timed output is, in a root mean square, an error is allowed if those of its like are not as large: who sorts
#: equal elements otherwise may err in all that is sorted, and so would zeros.
MOST_TIMED = 0.25
TINY = 1e-36  #: differences below this are differences between denormals
_OF_WHOLE = ("rms", "maximum")  #: the figures of a whole tensor
_SQUARABLE = 1e-12  #: float32 holds the squares of what is larger, and of its inverse
#: Anchors of rows and columns that are not judged.
_NOT_JUDGED = (torch.tensor(float("inf"), dtype=torch.float64),) * 2


@dataclass(frozen=True)
class Figures:
    """Error figures of one tensor, seen as rows by columns."""

    rms: torch.Tensor  # ()
    maximum: torch.Tensor  # ()
    rows: torch.Tensor  # (rows,) root mean square along each
    columns: torch.Tensor  # (columns,)


@dataclass(frozen=True)
class Typical:
    """Eager's error where the problem's own inputs are given in full, in shares of the output's root mean square. It
    anchors regimes of few elements, whose own error is a matter of luck, or of other kernels that the library takes."""

    rms: float = 0.0
    maximum: float = 0.0
    rows: float = float("inf")  # independent errors in a row
    columns: float = float("inf")  # and in a column

    def worst(self, other: "Typical") -> "Typical":
        return Typical(max(self.rms, other.rms), max(self.maximum, other.maximum), min(self.rows, other.rows),
                       min(self.columns, other.columns))


@dataclass(frozen=True)
class _Lines:
    """What is known of the errors of rows, or of columns, but for how large they are."""

    shared: torch.Tensor  # those whose elements share one error
    errors: float  # independent ones in each


def as_real(x: torch.Tensor) -> torch.Tensor:
    """``x``, all its real parts before all its imaginary parts where it is complex: a column has both, one of which may
    be zero by symmetry."""
    return torch.stack([x.real, x.imag]) if x.is_complex() else x


def as_matrix(x: torch.Tensor) -> torch.Tensor:
    """Rows along the last dimension."""
    return x.reshape(-1, x.shape[-1]) if x.ndim else x.reshape(1, 1)


def figures(error: torch.Tensor) -> Figures:
    """Figures of ``error``, a float64 tensor, which is overwritten."""
    squares = as_matrix(error).square_()
    rows, columns = squares.mean(1), squares.mean(0)
    return Figures(rows.mean().sqrt(), squares.max().sqrt(), rows.sqrt_(), columns.sqrt_())


def _whole(error: torch.Tensor) -> Figures:
    """Figures of the whole of ``error``, a tensor of any floating type; those of its lines are zero."""
    largest = _largest_magnitude(error)
    squarable = _SQUARABLE < largest < 1 / _SQUARABLE
    unit = largest if isfinite(largest) and largest and not squarable else 1.0
    norm = torch.linalg.vector_norm((error if unit == 1.0 else error / unit).float())
    rms = norm.double() * unit / max(1, error.numel()) ** 0.5
    none = torch.zeros_like(rms)
    return Figures(rms, torch.full_like(rms, largest), none, none)


def _largest_magnitude(x: torch.Tensor) -> float:
    """Of the elements of ``x``; NaN where one is, 0 of none."""
    if not x.numel():
        return 0.0
    least, most = (float(bound) for bound in x.aminmax())
    return most if most != most else max(most, -least)


def _rows_are_alike(values: torch.Tensor) -> bool:
    """Whether all rows are the same, as where the inputs are zeros: the whole then errs as one row does, whose elements
    may share one error, as those of a softmax do that of their sum."""
    rows = as_matrix(values)
    return len(rows) > 1 and rows.shape[1] >= LINE_ELEMENTS and bool((rows == rows[0]).all())


def _largest(a: Figures, b: Figures) -> Figures:
    return Figures(*(torch.maximum(getattr(a, f), getattr(b, f)) for f in a.__dataclass_fields__))


def _spread(values: torch.Tensor, error: torch.Tensor) -> Figures:
    """How many elements share the weight of a root mean square, over the whole and along rows and columns: the
    smaller of the expected values' number and of eager's errors'."""
    own, its = _shares(values), _shares(error)
    most = _different(values)
    return Figures(*(torch.minimum(getattr(own, f), getattr(its, f)).clamp(max=most) for f in own.__dataclass_fields__))


def _different(values: torch.Tensor) -> float:
    """How many different values there are, as far as a sample tells: where inputs are zeros there may be few, and as
    few different errors."""
    flat = values.reshape(-1)
    sample = flat[:: max(1, len(flat) // _SAMPLE)]
    found = len(sample.unique())
    return float(found if 2 * found < len(sample) else max(1, len(flat)))


def _shares(x: torch.Tensor) -> Figures:
    """(sum x^2)^2 / sum x^4: between 1 and the number of elements."""
    squares = as_matrix(x).square()
    fourth = squares.square()
    rows, columns = squares.sum(1), squares.sum(0)
    whole = _share(rows.sum(), fourth.sum())
    return Figures(whole, whole, _share(rows, fourth.sum(1)), _share(columns, fourth.sum(0)))


def _share(second: torch.Tensor, fourth: torch.Tensor) -> torch.Tensor:
    return (second.square() / fourth).nan_to_num_(1.0).clamp_(min=1.0)


def _factor(base: float, spread: torch.Tensor, elements: int = 0) -> torch.Tensor:
    """Errors of few elements scatter: ``base`` for many, and up to eleven times ``base`` where one among many has all
    the weight. Attention that adds up 250 values one by one had 19 times eager's error in some row of 64,000, and in the
    whole where one row was most of it: each value behind a large one is rounded as the large one is.

    Where ``elements`` are all there are, and few, up to nine times: a dot product of 50,000 terms, whose accumulators
    swallow small ones, used up to 1.11 of five times ``base`` where eager's pairwise sum was exact.
    """
    one = ONE_OF_FEW if 0 < elements < FEW_ELEMENTS else ONE_OF_MANY
    return base * (1 + one / spread.sqrt() + (4 / elements if elements else 0.0))


def _places(wanted: torch.Tensor) -> torch.Tensor:
    """The flat indices of what is true."""
    return wanted.reshape(-1).nonzero().view(-1)


def _finite(x: torch.Tensor) -> torch.Tensor:
    return x.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


@dataclass
class Expected:
    """What is expected of one tensor: its float64 value, and what error is allowed where."""

    name: str
    exact: torch.Tensor  # float64 (or an exact dtype), on the oracle's device
    eager: torch.Tensor | None  # eager float32, kept only where it has non-finite elements
    eager_rms: float = 0.0
    eager_maximum: float = 0.0
    size: float = 0.0  # root mean square of the exact value
    column_sizes: torch.Tensor | None = None  # along each column
    row_sizes: torch.Tensor | None = None  # and along each row
    anchor: Figures | None = None
    allowed: Figures | None = None
    skipped: str = ""
    statistic: bool = False  # a buffer: a mean of infinities is infinite if they are added up, by Welford's way NaN
    lines: bool = True  # whether rows and columns are judged; without, eager's own output stands for the exact value
    free: torch.Tensor | None = None  # flat indices of what is not finite in eager or in float64: no error is told there
    otherwise: torch.Tensor | None = None  # what may stand where it is free; NaN: nothing finite
    either: torch.Tensor | None = None  # where it is free: whether what is not finite may be of any kind
    shared: float = 0.0  # the part of the rows, or columns, that have one error which all their elements share
    errors: tuple[float, float] = (float("inf"),) * 2  # independent ones in a row, and in a column
    rounded: torch.Tensor | None = None  # of integers: where rounding decides, as where two maxima are all but equal

    @classmethod
    def exactly(cls, name: str, value: torch.Tensor, others: Sequence[torch.Tensor] = ()) -> "Expected":
        """A tensor of integers or truth values, which must be equal, but where one of ``others`` is not: the runs in
        float64, with and without rounding. Where that is over half of a row, the rest of it may differ too: some of many
        equal elements are in one place in all of a few orders that are drawn."""
        leaf = cls(name, value, None)
        alike = [other for other in others if other.shape == value.shape]
        if alike and value.numel():
            rounded = as_matrix(torch.stack([value != other for other in alike]).any(0))
            leaf.rounded = (rounded | (rounded.double().mean(1, keepdim=True) > 0.5)).view(value.shape)
        return leaf

    @classmethod
    def within(
        cls, name: str, exact: torch.Tensor, eager: torch.Tensor, noisy: Sequence[torch.Tensor],
        typical: Typical = Typical(),
    ) -> "Expected":
        """A floating or complex tensor: ``exact`` in float64, ``eager`` as PyTorch gives it, ``noisy`` a few runs in
        float64 with a float32 rounding behind each operator.

        Without noisy runs, eager's error is the only anchor, and lines whose error is that of a few elements, which
        is a matter of luck, are not judged.
        """
        exact, eager, *noisy = (as_real(x) for x in (exact, eager, *noisy))
        if not exact.numel():
            return cls(name, exact, None)
        exact = exact.double()  # it has the type that the problem gives it, as in a last step to bfloat16
        bad = ~(torch.isfinite(eager) & torch.isfinite(exact))
        kept = eager if bool(bad.any()) else None
        leaf = cls(name, exact, kept, free=None if kept is None else _places(bad))
        # What only float32 cannot hold would be most of the tensor's size, or too large to be squared.
        values = _finite(exact).masked_fill_(bad, 0.0) if kept is not None else exact

        def error_of(run: torch.Tensor) -> torch.Tensor:
            error = (run.double() - values).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            return error if kept is None else error.masked_fill_(bad, 0.0)

        error = error_of(eager)
        spread = _spread(values, error)
        own = figures(error)
        errors = [error_of(other) for other in noisy]
        shared = _one_error(errors)
        leaf.shared = max(float(found.double().mean()) for found in shared)
        noise = [_as_large(figures(errors.pop(0)), own) for _ in noisy]
        leaf.eager_rms, leaf.eager_maximum = float(own.rms), float(own.maximum)
        size = figures(values.clone())
        leaf.size, leaf.column_sizes, leaf.row_sizes = float(size.rms), size.columns, size.rows
        leaf.errors = _errors_in(own.rows, size.rows), _errors_in(own.columns, size.columns)
        lines = [_Lines(*pair) for pair in zip(shared, map(min, leaf.errors, (typical.rows, typical.columns)))]
        epsilon = max(EPSILON, torch.finfo(eager.dtype).eps / _COARSER)

        def anchor(found: Sequence[Figures]) -> Figures:
            return _anchor(reduce(_largest, found), size, typical, epsilon)

        def allowed(anchor: Figures) -> Figures:
            return _allowed(anchor, size, spread, 0.0 if noisy else LUCKY, epsilon, lines, 1 + len(noisy))

        leaf.anchor = anchor([own, *noise])
        leaf.allowed = allowed(leaf.anchor)
        apart = [(run, allowed(anchor([own, *(n for n in noise if n is not run)]))) for run in noise]
        leaf.allowed = replace(leaf.allowed, rows=leaf.allowed.rows * _scatter(apart, "rows"),
                               columns=leaf.allowed.columns * _scatter(apart, "columns"))
        if _rows_are_alike(values):
            leaf.allowed = replace(leaf.allowed, rms=torch.maximum(leaf.allowed.rms, leaf.allowed.rows.max()))
        return leaf

    def again(self, eager: torch.Tensor, *, lines: bool = False) -> "Expected":
        """What is expected of the same tensor for other inputs like these, where only ``eager`` in float32 is known.

        Eager's own error has the size that it has here, and lies in a comparison with it too; rows and columns are judged
        only with ``lines``, and without, differences are taken as they are: a screening does this often.
        """
        if not is_inexact(eager):
            return Expected.exactly(self.name, eager)
        eager = as_real(eager)
        size = _whole(eager)
        finite = bool(torch.isfinite(size.maximum))
        leaf = Expected(self.name, eager, None, lines=False)
        if not finite:
            leaf.eager, leaf.free = eager, _places(~torch.isfinite(eager))
        if self.anchor is None or self.allowed is None:
            leaf.skipped = self.skipped or "nothing is known of it"
            return leaf
        size = size if finite else _whole(_finite(eager))
        by = TIMED_FACTOR * (float(size.rms) / self.size if self.size else 1.0)
        leaf.anchor = Figures(*(by * getattr(self.anchor, f) for f in _OF_WHOLE), *_NOT_JUDGED)
        leaf.allowed = Figures(*(by * getattr(self.allowed, f) for f in _OF_WHOLE), *_NOT_JUDGED)
        if lines and finite and self.column_sizes is not None and self.row_sizes is not None:
            sizes = figures(eager.to(torch.float64, copy=True))
            grown = (sizes.columns / self.column_sizes).nan_to_num(nan=1.0, posinf=float("inf")).clamp(min=1.0)
            share = _middle_share(self.allowed.rows, self.row_sizes)
            leaf.allowed = replace(leaf.allowed, rows=TIMED_LINE_FACTOR * share * sizes.rows,
                                   columns=TIMED_LINE_FACTOR * grown * self.allowed.columns)
            leaf.lines = True
        return leaf

    def no_looser(self, other: "Expected") -> "Expected":
        """The same, allowed no more than :data:`MOST_TIMED`, or what ``other`` is if that is more."""
        if self.allowed is None or other.allowed is None:
            return self
        most = torch.maximum(other.allowed.rms, torch.full_like(other.allowed.rms, MOST_TIMED * self.size))
        return replace(self, allowed=replace(self.allowed, rms=torch.minimum(self.allowed.rms, most)))

    def excuse(self, places: torch.Tensor) -> None:
        """Let anything stand in ``places``, truth values, where eager or float64 is finite."""
        if self.exact.is_floating_point() and bool(places.any()):
            self.eager = self.exact if self.eager is None else self.eager
            held = places if self.free is None else places.reshape(-1).index_fill(0, self.free, True)
            self.free = _places(held)

    def waive(self, bounded: torch.Tensor) -> None:
        """Let anything stand where eager and float64 are NaN though their inputs are finite, and of smaller inputs the
        result, ``bounded``, is: zero times what is too large for either is zero in another order."""
        if self.eager is not None:
            lost = torch.isnan(self.eager) & torch.isnan(self.exact) & torch.isfinite(bounded)
            self.exact = self.exact.masked_fill(lost, 0.0)

    @property
    def has_nan(self) -> bool:
        """Whether eager and float64 both are NaN somewhere."""
        return self.eager is not None and bool((torch.isnan(self.eager) & torch.isnan(self.exact)).any())

    @property
    def lacks_columns(self) -> bool:
        """Whether there are columns that are long enough to be judged and are not, for want of noisy runs."""
        allowed = self.allowed
        return allowed is not None and len(allowed.rows) >= LINE_ELEMENTS and bool(torch.isinf(allowed.columns).any())

    @property
    def typical(self) -> Typical:
        """Eager's error here, for regimes of fewer elements."""
        if self.anchor is None or not self.size:
            return Typical()
        return Typical(self.eager_rms / self.size, self.eager_maximum / self.size, *self.errors)

    def judge(self, value: torch.Tensor, accuracy: Accuracy) -> dict[str, Any]:
        """Error figures of ``value``, and whether they are allowed: the fields of ``RegimeErrors`` but two."""
        if self.skipped:
            return _row(note=f"skipped: {self.skipped}", ok=True)
        value = as_real(value)
        if not self.exact.is_floating_point():
            differs = value != self.exact
            wrong = int((differs if self.rounded is None else differs & ~self.rounded).sum())
            if not wrong and bool(differs.any()) and _come_twice(value) and not _come_twice(self.exact):
                return self._refused("some come twice in a row, and none does in PyTorch's")
            return _row(ok=not wrong, note=f"{wrong} of {value.numel()} elements differ" if wrong else "")
        if not value.numel():
            return _row(ok=True, note="empty")
        error = value.double().sub_(self.exact) if self.lines else value - self.exact
        if self.eager is not None and self.free is not None:
            if note := self._other_kind(value):
                return self._refused(note)
            error = error.contiguous()
            error.view(-1).index_fill_(0, self.free, 0.0)
        tolerated = []
        if accuracy is Accuracy.KERNELBENCH:
            tolerated = [_share_of(error.abs(), KERNELBENCH_TOLERANCE * (1 + _finite(self.exact).abs()))]
        mine = figures(error) if self.lines else _whole(error)
        # All of them at once: a device is waited for with each number that is asked for.
        rms, maximum, *found = torch.stack([mine.rms, mine.maximum, *(tolerated or self._shares(mine))]).tolist()
        if not isfinite(rms):
            bad = int((~torch.isfinite(value)).sum())
            return self._refused(f"{bad} of {value.numel()} elements are not finite, some where PyTorch's are")
        if tolerated:
            ratio, used = rms / max(self.eager_rms, TINY), found[0]
        else:
            ratio, used = max(found[: len(_OF_WHOLE)]), max(found[len(_OF_WHOLE) :])
        return _row(rms=rms, maximum=maximum, eager_rms=self.eager_rms, eager_maximum=self.eager_maximum, ratio=ratio,
                    used=used, ok=used <= 1.0)

    def _shares(self, mine: Figures) -> list[torch.Tensor]:
        """Figures of the whole in shares of their anchors, then all figures in shares of what is allowed."""
        assert self.anchor is not None and self.allowed is not None
        anchored = [_share_of(getattr(mine, f), getattr(self.anchor, f)) for f in _OF_WHOLE]
        return anchored + [_share_of(getattr(mine, f), getattr(self.allowed, f)) for f in mine.__dataclass_fields__]

    def _other_kind(self, value: torch.Tensor) -> str:
        """What is wrong with ``value`` where eager and float64 both are not finite: it may be as either is, for what
        underflows in one need not in the other."""
        assert self.eager is not None and self.free is not None
        mine, eager, exact = (x.reshape(-1)[self.free] for x in (value, self.eager, self.exact))
        same = (mine == eager) | (mine == exact) | (torch.isnan(mine) & (torch.isnan(eager) | torch.isnan(exact)))
        if self.otherwise is not None and self.allowed is not None:
            same |= (mine - self.otherwise).abs() <= self.allowed.maximum
        if self.statistic:
            same |= ~torch.isfinite(mine)
        elif self.either is not None:
            same |= self.either & ~torch.isfinite(mine)
        wrong = int((~torch.isfinite(eager) & ~torch.isfinite(exact) & ~same).sum())
        return f"{wrong} elements that are not finite in PyTorch are finite or of another kind" if wrong else ""

    def _refused(self, note: str) -> dict[str, Any]:
        return _row(ok=False, note=note, eager_rms=self.eager_rms, eager_maximum=self.eager_maximum)


def _come_twice(integers: torch.Tensor) -> bool:
    """Whether some row has a number twice, as an order of elements has not."""
    rows = as_matrix(integers).sort(1).values
    return bool((rows[:, 1:] == rows[:, :-1]).any())


def _worst(figure: torch.Tensor, bound: torch.Tensor) -> float:
    """The largest share of ``bound``; infinite where it cannot be told."""
    return float(_share_of(figure, bound))


def _share_of(figure: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    return (figure / (bound + TINY)).max().nan_to_num(nan=float("inf"))


def _anchor(error: Figures, size: Figures, typical: Typical, epsilon: float) -> Figures:
    """Where eager is right by luck in one row or column, its typical error counts."""
    floor = epsilon * size.rms
    return Figures(
        torch.maximum(torch.maximum(error.rms, typical.rms * size.rms), floor),
        torch.maximum(torch.maximum(error.maximum, typical.maximum * size.rms), epsilon * size.maximum),
        _line_anchor(error.rows, size.rows, max(typical.rms, epsilon)),
        _line_anchor(error.columns, size.columns, max(typical.rms, epsilon)),
    )


def _middle_share(lines: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """The median over lines of a figure, in shares of what they are."""
    return (lines / (sizes + TINY)).median()


def _line_anchor(error: torch.Tensor, size: torch.Tensor, least: float) -> torch.Tensor:
    share = _middle_share(error, size).clamp(min=least)
    return torch.maximum(error, share * size)


def _as_large(noise: Figures, own: Figures) -> Figures:
    """A noisy run's error where it is less than eager's, ``own``, scaled to be as large over the whole: it tells where
    errors show, eager how large they are."""
    scale = (own.rms / (noise.rms + TINY)).clamp(1.0, NOISE_SCALE)
    return Figures(*(getattr(noise, f) * scale for f in noise.__dataclass_fields__))


def _scatter(apart: Sequence[tuple[Figures, Figures]], lines: str) -> float:
    """By how much more the errors of lines scatter from run to run than those of as many independent elements do: as
    much as any noisy run would exceed the allowance that eager and the other runs alone give, 1 at least. Where a
    softmax all but decides between two, the elements of a row share one error, which some run or other hardly has.
    """
    exceeded = [_worst(getattr(run, lines), getattr(allowed, lines)) for run, allowed in apart]
    return min(max([1.0, *exceeded]), MOST_SCATTERED)


def _allowed(
    anchor: Figures, size: Figures, spread: Figures, judged_from: float, epsilon: float, lines: Sequence[_Lines], runs: int
) -> Figures:
    elements = len(anchor.rows) * len(anchor.columns)
    rows, columns = lines
    errors = max(1.0, min(rows.errors * len(anchor.rows), columns.errors * len(anchor.columns)))
    rms = _factor(RMS_FACTOR, spread.rms.clamp(max=errors), elements)
    maximum = _factor(MAX_FACTOR, spread.maximum.clamp(max=errors), elements)
    return Figures(
        torch.maximum(rms * anchor.rms, FLOOR_RMS * epsilon * size.rms),
        torch.maximum(maximum * anchor.maximum, FLOOR_MAX * epsilon * size.maximum),
        _line_allowed(anchor.rows, spread.rows, len(anchor.columns), judged_from, rows, runs),
        _line_allowed(anchor.columns, spread.columns, len(anchor.rows), judged_from, columns, runs),
    )


def _errors_in(lines: torch.Tensor, sizes: torch.Tensor) -> float:
    """How many independent errors there are in a line, by how much those of lines, root mean squares, scatter: the mean
    square of ``n`` has a relative variance of 2 / n. Infinite where lines are too few to tell; of many, some tell."""
    step = max(1, len(lines) // _ENOUGH_OF_MANY)
    shares = (lines[::step] / (sizes[::step] + TINY)).cpu()
    shares = shares[shares > 0]
    if len(shares) < _ENOUGH_LINES:
        return float("inf")
    low, high = torch.quantile(2 * shares.log(), _ONE_SIGMA).tolist()
    return max(1.0, 8 / max(high - low, TINY) ** 2)


def _one_error(errors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows and the columns in which the errors of some two runs point the same way, or the opposite one: all elements
    share one error, as those of a row where a softmax decides between two, and those of a column behind a mean."""
    runs = [as_matrix(error) for error in errors[:_COMPARED]]
    return _point_alike(runs, 1), _point_alike(runs[:2], 0)


def _point_alike(runs: Sequence[torch.Tensor], dim: int) -> torch.Tensor:
    if len(runs) < 2 or runs[0].shape[dim] < LINE_ELEMENTS:
        return torch.zeros((), dtype=torch.bool)
    squares = [_dots(run, run, dim) for run in runs]
    by_chance = 1 - BY_CHANCE ** (2 / (runs[0].shape[dim] - 1))  # errors that have nothing to do with each other
    return torch.stack([
        _dots(runs[i], runs[j], dim).square() > max(ONE_ERROR, by_chance) * squares[i] * squares[j]
        for i, j in combinations(range(len(runs)), 2)
    ]).any(0)


def _dots(a: torch.Tensor, b: torch.Tensor, dim: int) -> torch.Tensor:
    """Dot products of lines along ``dim``; a product of matrices reads rows once and writes nothing."""
    return (a[:, None] @ b[:, :, None]).view(-1) if dim else torch.linalg.vecdot(a, b, dim=0)


def _line_allowed(
    anchor: torch.Tensor, spread: torch.Tensor, elements: int, judged_from: float, lines: _Lines, runs: int
) -> torch.Tensor:
    """What lines are allowed. That all of ``runs`` have hardly any of the one error of a line has the chance ``c^runs``
    where the anchor is ``c`` times what is usual, and among ``n`` lines there is one with ``n^(-1/runs)`` times that:
    they are allowed as much more."""
    if elements < LINE_ELEMENTS:
        return torch.full_like(anchor, float("inf"))
    shared = lines.shared.to(anchor.device)
    lucky = torch.where(shared, shared.sum().clamp(min=1) ** (1 / runs), 1.0)
    errors = torch.where(shared, 1.0, spread.clamp(max=lines.errors))
    return torch.where(spread < judged_from, float("inf"), _factor(LINE_FACTOR, errors) * lucky * anchor)


def _row(
    *, ok: bool, note: str = "", rms: float | None = None, maximum: float | None = None,
    eager_rms: float | None = None, eager_maximum: float | None = None, ratio: float | None = None,
    used: float | None = None,
) -> dict[str, Any]:
    return {"rms": rms, "maximum": maximum, "eager_rms": eager_rms, "eager_maximum": eager_maximum, "ratio": ratio,
            "used": used, "ok": ok, "note": note}
