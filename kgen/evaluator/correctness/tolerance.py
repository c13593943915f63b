"""Tolerances: error figures of a tensor against float64, and how much error PyTorch's own allows.

An error is measured as root mean square and maximum over the whole tensor. Each row (along the last dimension) and each
column has a root mean square too. Each figure may be a multiple of its *reference error*, which is the larger of two.
One is eager PyTorch's error in the same place. The other is that of float64 runs with a float32 rounding behind each
operator. They run before a value is refused: eager may be exact by luck, as where a sum cancels. The whole tells
precision; rows and columns show gross errors that the whole hides, as where rows differ in size.

The ratio of two single errors tells nothing: either may be small by luck. So a tensor of few independent errors, such
as a loss, is judged by the root mean square over several inputs (:func:`pooled`).
"""

import math
from dataclasses import dataclass, replace
from functools import reduce
from math import inf
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import torch

from kgen.evaluator.runtime.arena import is_inexact
from kgen.protocol import KERNELBENCH_TOLERANCE, MAX_FACTOR, RMS_FACTOR, Accuracy

EPSILON = 2.0**-23  #: of float32
#: Times the reference error; on a row or a column. The elements of a line may share one error. In one of
#: 64,000 lines, all runs miss it by luck by a factor of 66. Zeros and half precision exceed it by far.
LINE_FACTOR = 256.0
LINE_ELEMENTS = 8  #: elements; a shorter row or column is not judged alone, since it may be small by cancellation
FEW_ERRORS = 1024  #: independent errors; a tensor of fewer is judged over several inputs
INPUTS = 32  #: of a tensor of few errors: its own and fresh ones
FIRST_INPUTS = 8  #: inputs, own and fresh, where a run takes long or the errors are clear
CLEAR = 0.7  #: of what is allowed; errors over :data:`CLEAR_ERRORS` or more that use no more of it are right
CLEAR_ERRORS = 8  #: independent errors, over all inputs
#: Limit of one input's error over the root mean square of all inputs' errors, where all inputs together are just within
#: the tolerance.
_ONE_OF_INPUTS = math.sqrt(INPUTS)
HOPELESS = 64.0  #: times the limit of one error; fresh inputs do not make a larger error right
FEW_ELEMENTS = 1 << 16  #: of a tensor that is judged over several inputs; all of them are kept
_ENOUGH_LINES, _ENOUGH_OF_MANY = 32, 1 << 16  #: lines that show how errors scatter; of many lines, some are read
_ONE_SIGMA = torch.tensor([0.159, 0.841], dtype=torch.float64)  #: quantiles
_PART = 1 << 24  #: elements that are compared at once
_SAMPLE = 4096  #: elements that show whether a tensor has few different values
NOISE_SCALE = 100.0  #: factor; a long sum errs at most that much more than one rounding behind it
FLOOR_RMS, FLOOR_MAX = 2.0, 4.0  #: epsilons of float32, relative to the expected values
FLOOR_OF_FEW = 1.0  #: epsilons of float32, relative to the expected values; of few errors, over several inputs
_COARSER = 4.0  #: divides the epsilon of a type below float32: rounding the other way is within the floor
_COARSE = 64.0  #: epsilons of float32; the rounding of exact values to it adds 1e-5 to a larger root mean square error
#: Times the tolerance against float64; on the difference between a timed output and eager PyTorch's. Two outputs that
#: use all of it on opposite sides would differ by 2.
TIMED_FACTOR = 1.5
#: The share of zeros in a line that tells nothing of the numbers behind them: nearly all were clamped, as by ReLU.
MOSTLY_ZERO = 15 / 16
TINY = 1e-36  #: smaller differences are differences between denormals


@dataclass(frozen=True)
class Figures:
    """Error figures of a tensor, seen as rows by columns."""

    rms: torch.Tensor  # ()
    maximum: torch.Tensor  # ()
    rows: torch.Tensor  # (rows,) root mean squares
    columns: torch.Tensor  # (columns,)

    def each(self, function: Callable[..., torch.Tensor], *others: "Figures") -> "Figures":
        """``function`` of each figure and of those of ``others`` in its place."""
        return Figures(*map(function, *(vars(one).values() for one in (self, *others))))


@dataclass(frozen=True)
class Typical:
    """Eager's error on the problem's own inputs, in shares of the output's root mean square. It is part of the
    reference error for other batches, where eager's own error is a matter of luck or of other kernels."""

    rms: float = 0.0
    maximum: float = 0.0
    rows: float = inf  # independent errors in a row
    columns: float = inf  # and in a column

    def worst(self, other: "Typical") -> "Typical":
        return Typical(
            max(self.rms, other.rms),
            max(self.maximum, other.maximum),
            min(self.rows, other.rows),
            min(self.columns, other.columns),
        )


def epsilon_of(dtype: torch.dtype) -> float:
    """The relative error that one rounding to ``dtype`` may make; of float32 for wider ones."""
    return max(EPSILON, torch.finfo(dtype).eps / _COARSER)


def as_real(x: torch.Tensor) -> torch.Tensor:
    """``x``; of complex numbers all real parts, then all imaginary parts. One of them may be zero by symmetry."""
    return torch.stack([x.real, x.imag]) if x.is_complex() else x


def as_matrix(x: torch.Tensor) -> torch.Tensor:
    """Rows along the last dimension."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1]) if x.ndim else x.reshape(1, 1)


def parts(*alike: torch.Tensor) -> Iterator[tuple[int, list[torch.Tensor]]]:
    """The rows of tensors of one shape, some at a time, with the flat index of the first element."""
    matrices = [as_matrix(x) for x in alike]
    columns = matrices[0].shape[1]
    step = max(1, _PART // max(1, columns))
    for first in range(0, len(matrices[0]), step):
        yield first * columns, [x[first : first + step] for x in matrices]


def figures(errors: Iterable[torch.Tensor]) -> Figures:
    """The figures of an error in float64, given as the parts of its matrix, which are overwritten."""
    rows, maxima, columns = [], [], 0.0
    for squares in (error.square_() for error in errors):
        rows.append(squares.mean(1))
        maxima.append(squares.max())
        columns = columns + squares.sum(0)
    means = torch.cat(rows)
    return Figures(means.mean().sqrt(), torch.stack(maxima).max().sqrt(), means.sqrt(), (columns / len(means)).sqrt())


def _spread(values: torch.Tensor, errors: Iterable[torch.Tensor]) -> torch.Tensor:
    """How many elements carry the weight of the whole's root mean square: the smallest of three numbers. The three
    numbers are the carriers among the expected values and among eager's errors, and the different values. The result is
    1 where all rows are equal, as for zero inputs: equal rows err like one row."""
    rows = as_matrix(values)
    if (
        len(rows) > 1
        and rows.shape[1] >= LINE_ELEMENTS
        and all(bool((x == rows[0]).all()) for _, (x,) in parts(values))
    ):
        return torch.ones((), dtype=torch.float64, device=values.device)
    carriers = _carriers(part for _, (part,) in parts(values))
    return torch.minimum(carriers, _carriers(errors)).clamp(max=_different(values))


def _different(values: torch.Tensor) -> float:
    """How many different values a sample shows. Zero inputs give few values, and as few different errors."""
    flat = values.reshape(-1)
    sample = flat[:: max(1, len(flat) // _SAMPLE)]
    found = len(sample.unique())
    return float(found if 2 * found < len(sample) else max(1, len(flat)))


def _carriers(found: Iterable[torch.Tensor]) -> torch.Tensor:
    """(sum x^2)^2 / sum x^4 of a tensor's parts: between 1 and the number of elements."""
    sums = [(squares.sum(), squares.square().sum()) for squares in map(torch.square, found)]
    second, fourth = (torch.stack(same).sum() for same in zip(*sums))
    return (second.square() / fourth).nan_to_num_(1.0).clamp_(min=1.0)


def _without(part: torch.Tensor, first: int, places: torch.Tensor | None) -> torch.Tensor:
    """``part``, whose first element has the flat index ``first``, with zeros in ``places``, which rise."""
    if places is not None:
        part = part.contiguous()
        low, high = torch.searchsorted(places, places.new_tensor([first, first + part.numel()])).tolist()
        part.view(-1).index_fill_(0, places[low:high] - first, 0.0)
    return part


def _non_finite(eager: torch.Tensor, *exact: torch.Tensor) -> torch.Tensor | None:
    """The flat indices of elements that are not finite in ``eager``, or where ``exact`` is rounded to its dtype. Values
    that are infinite with a quarter of a unit in the last place more count too. ``None`` without any."""
    edge = 1 + torch.finfo(eager.dtype).eps / 4
    found = []
    for first, (own, *others) in parts(eager, *exact):
        every = [own, *((x * edge).to(eager.dtype) for x in others)]
        finite = reduce(torch.logical_and, map(torch.isfinite, every))
        found.append(first + (~finite).flatten().nonzero().flatten())
    places = torch.cat(found)
    return places if len(places) else None


def _finite(x: torch.Tensor) -> torch.Tensor:
    return x.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


@dataclass
class Expected:
    """The expected values of one tensor, with its reference errors and tolerances."""

    name: str
    exact: torch.Tensor  # float64 (or an exact dtype), on the oracle's device
    eager: torch.Tensor | None  # eager float32, kept if an element is not finite
    eager_rms: float = 0.0
    eager_maximum: float = 0.0
    sizes: Figures | None = None  # of the exact values
    found_error: Figures | None = None  # the largest of all runs
    reference_error: Figures | None = None
    allowed: Figures | None = None
    elsewhere: Typical = Typical()
    skipped: str = ""
    free: torch.Tensor | None = None  # flat indices of non-finite elements in eager or float64; they have no error
    otherwise: torch.Tensor | None = None  # finite values that are right there too; NaN: none
    either: torch.Tensor | bool = False  # where NaN and infinities are both right there, as in a buffer's means
    errors: tuple[float, float] = (inf,) * 2  # independent errors in a row, and in a column
    rounded: torch.Tensor | None = None  # integers: where rounding decides
    spread: torch.Tensor | None = None  # how many elements carry the weight of the whole
    independent: float = inf  # errors
    noise: tuple[float, float] = (0.0, 0.0)  # root mean square and maximum of the error of runs with roundings
    epsilon: float = EPSILON

    @classmethod
    def begun(cls, name: str, exact: torch.Tensor, eager: torch.Tensor) -> "Expected":
        """A tensor that is ``exact`` in float64 and ``eager`` by PyTorch; :meth:`see` adds runs, :meth:`settle` ends
        it. Integers and truth values must be equal to eager's, except where another run differs. If that is over half
        of a row, the rest of the row may differ too (orders of equal elements)."""
        if not is_inexact(exact):
            found = cls(name, eager, None)
            found.see(exact)
            return found
        exact, eager = as_real(exact), as_real(eager)
        if not exact.numel():
            return cls(name, exact, None)
        exact = exact.double()  # a problem may end in bfloat16
        free = _non_finite(eager, exact)
        found = cls(name, exact, None if free is None else eager, free=free)
        found.found_error = own = figures(found._errors(eager))
        found.eager_rms, found.eager_maximum = float(own.rms), float(own.maximum)
        found.sizes = size = figures(part.clone() for part in found._values())
        found.errors = _errors_in(own.rows, size.rows), _errors_in(own.columns, size.columns)
        values = exact if found.free is None else torch.cat(list(found._values()))
        found.spread = _spread(values, found._errors(eager))
        found.epsilon = epsilon_of(eager.dtype)
        return found

    def see(self, noisy: torch.Tensor) -> None:
        """Take in a run in float64 with a float32 rounding behind each operator."""
        if not is_inexact(self.exact):
            if noisy.shape == self.exact.shape and noisy.numel():
                differs = self.exact != noisy
                self.rounded = differs if self.rounded is None else self.rounded.logical_or_(differs)
        elif self.found_error is not None:
            noise = figures(self._errors(as_real(noisy)))
            self.noise = max(self.noise[0], float(noise.rms)), max(self.noise[1], float(noise.maximum))
            scale = (self.eager_rms / (noise.rms + TINY)).clamp(1.0, NOISE_SCALE)
            self.found_error = self.found_error.each(lambda error, other: torch.maximum(error, other * scale), noise)

    def settle(self, typical: Typical | None = None) -> "Expected":
        """Set the tolerance from the runs seen so far; ``typical`` is eager's error elsewhere. Returns itself."""
        self.elsewhere = typical = typical or self.elsewhere
        if self.rounded is not None:
            lines = as_matrix(self.rounded)
            self.rounded = (lines | (lines.double().mean(1, keepdim=True) > 0.5)).view(self.exact.shape)
        if self.sizes is None or self.found_error is None or self.spread is None:
            return self
        size, (rows, columns) = self.sizes, self.errors
        errors = min(min(rows, typical.rows) * len(size.rows), min(columns, typical.columns) * len(size.columns))
        self.independent = min(float(self.spread), max(1.0, errors))
        self.reference_error = self._settled(self.found_error, size, typical)
        self.allowed = _allowed(self.reference_error, size, _ONE_OF_INPUTS if self.few else 1.0, self.epsilon)
        return self

    @property
    def few(self) -> bool:
        """Whether so few errors are independent that one input does not tell them from PyTorch's."""
        return self.independent < FEW_ERRORS

    def _settled(self, error: Figures, size: Figures, typical: Typical) -> Figures:
        """The reference error; eager's typical error counts in lines where eager is exact by luck."""
        least = max(typical.rms, self.epsilon)
        rms = torch.maximum(error.rms, least * size.rms)
        maximum = torch.maximum(torch.maximum(error.maximum, typical.maximum * size.rms), self.epsilon * size.maximum)
        lines = []
        for own, sizes, zeros in zip(
            (error.rows, error.columns), (size.rows, size.columns), _mostly_zero(self._values())
        ):
            line = torch.maximum(own, _middle_share(own, sizes).nan_to_num(0.0).clamp(min=least) * sizes)
            # Zeros that a threshold made are exact in eager, and an error of the whole's size may cross the threshold.
            lines.append(torch.where(zeros, torch.maximum(line, rms / LINE_FACTOR), line))
        return Figures(rms, maximum, *lines)

    def _values(self) -> Iterator[torch.Tensor]:
        """The parts of ``exact``. Values that float32 cannot hold are zero: they would dominate the tensor's size."""
        for first, (part,) in parts(self.exact):
            yield part if self.free is None else _without(_finite(part), first, self.free)

    def _errors(self, run: torch.Tensor) -> Iterator[torch.Tensor]:
        """The parts of the error of ``run``."""
        for (first, (part,)), values in zip(parts(run), self._values()):
            error = (part.double() - values).nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            yield _without(error, first, self.free)

    def again(self, eager: torch.Tensor) -> "Expected":
        """The expectation for other inputs like these, of which only ``eager`` in float32 is known. Eager's error is
        taken to be as large as here, in shares of the values."""
        eager = as_real(eager)
        if self.reference_error is None or self.allowed is None or self.sizes is None or self.skipped:
            return Expected(self.name, eager, None, skipped=self.skipped)
        free = _non_finite(eager)
        sizes = figures(_finite(part.double()) for _, (part,) in parts(eager))
        by = TIMED_FACTOR * (sizes.rms / self.sizes.rms if self.sizes.rms else 1.0)
        lines = [
            (TIMED_FACTOR * _middle_share(allowed, size) * mine).nan_to_num(nan=inf, posinf=inf)
            for allowed, size, mine in (
                (self.allowed.rows, self.sizes.rows, sizes.rows),
                (self.allowed.columns, self.sizes.columns, sizes.columns),
            )
        ]
        error, allowed = (Figures(by * of.rms, by * of.maximum, *lines) for of in (self.reference_error, self.allowed))
        return Expected(
            self.name,
            eager,
            None if free is None else eager,
            free=free,
            sizes=sizes,
            reference_error=error,
            allowed=allowed,
        )

    def narrowed(self) -> "Expected":
        """The same with exact values in float32, where PyTorch's error is much larger than their rounding."""
        if self.sizes is None or self.exact.dtype != torch.float64:
            return self
        errs = self.eager_rms > _COARSE * torch.finfo(torch.float32).eps * float(self.sizes.rms)
        fits = float(self.sizes.maximum) < torch.finfo(torch.float32).max / 2
        return replace(self, exact=self.exact.float()) if errs and fits else self

    def to(self, device: str) -> "Expected":
        """The same with its tensors on ``device``."""

        def moved(value: Any) -> Any:
            if isinstance(value, Figures):
                return value.each(moved)
            return value.to(device) if isinstance(value, torch.Tensor) else value

        return replace(self, **{name: moved(value) for name, value in vars(self).items()})

    @property
    def nbytes(self) -> int:
        """Bytes of the largest tensors."""
        return sum(x.nbytes for x in (self.exact, self.eager, self.free, self.otherwise) if x is not None)

    def excuse(self, places: torch.Tensor) -> None:
        """Accept anything in ``places``, a mask."""
        if self.exact.is_floating_point() and bool(places.any()):
            self.eager = self.exact if self.eager is None else self.eager
            self.exact = self.exact.masked_fill(places, 0.0)
            held = places.flatten() if self.free is None else places.flatten().index_fill(0, self.free, True)
            self.free = held.nonzero().flatten()

    @property
    def nan(self) -> torch.Tensor:
        """Where eager and float64 are NaN, a mask."""
        return torch.isnan(self.exact) & torch.isnan(self.exact if self.eager is None else self.eager)

    @property
    def typical(self) -> Typical:
        """Eager's error here, for other batches."""
        if self.sizes is None or not self.sizes.rms:
            return Typical()
        size = float(self.sizes.rms)
        return Typical(self.eager_rms / size, self.eager_maximum / size, *self.errors)

    def judge(self, value: torch.Tensor, accuracy: Accuracy) -> dict[str, Any]:
        """Error figures of ``value`` and whether they are within tolerance: the fields of ``CaseErrors`` but two."""
        if self.skipped:
            return row(note=f"skipped: {self.skipped}", ok=True)
        value = as_real(value)
        if not self.exact.is_floating_point():
            differs = value != self.exact
            wrong = int((differs if self.rounded is None else differs & ~self.rounded).sum())
            if not wrong and bool(differs.any()) and _come_twice(value) and not _come_twice(self.exact):
                return self._row(ok=False, note="some come twice in a row, and none does in PyTorch's")
            return row(ok=not wrong, note=f"{wrong} of {value.numel()} elements differ" if wrong else "")
        if not value.numel():
            return row(ok=True, note="empty")
        if self.eager is not None and self.free is not None and (note := self._other_kind(value)):
            return self._row(ok=False, note=note)

        tolerated: list[torch.Tensor] = []
        mine = self.figures_of(value, tolerated if accuracy is Accuracy.KERNELBENCH else None)
        # All at once: each read waits for the device.
        kept = [torch.stack(tolerated).max()] if tolerated else self._shares(mine)
        rms, maximum, *shares = torch.stack([mine.rms, mine.maximum, *kept]).tolist()
        if not math.isfinite(rms):
            bad = int((~torch.isfinite(value)).sum())
            return self._row(
                ok=False, note=f"{bad} of {value.numel()} elements are not finite, some where PyTorch's are"
            )
        used = max(shares)
        return self._row(rms=rms, maximum=maximum, ratio=self._ratio(rms, self.eager_rms), used=used, ok=used <= 1.0)

    def figures_of(self, value: torch.Tensor, tolerated: list[torch.Tensor] | None = None) -> Figures:
        """The figures of the error of ``value``. For each part, ``tolerated`` takes the largest share of KernelBench's
        tolerance."""

        def errors() -> Iterator[torch.Tensor]:
            for first, (mine, exact) in parts(value, self.exact):
                error = _without(mine.double() - exact, first, self.free)
                if tolerated is not None:
                    tolerated.append(_share_of(error.abs(), KERNELBENCH_TOLERANCE * (1 + _finite(exact).abs())))
                yield error

        return figures(errors())

    def _ratio(self, rms: float, eager_rms: float) -> float | None:
        """An error over PyTorch's own; ``None`` where PyTorch's is zero or a difference of denormals."""
        return rms / eager_rms if eager_rms > TINY else None

    def _shares(self, mine: Figures) -> list[torch.Tensor]:
        """All figures in shares of their tolerances: the whole's two, then the largest of the rows and of the
        columns."""
        assert self.allowed is not None
        return [*vars(mine.each(_share_of, self.allowed)).values()]

    @property
    def may_be_pooled(self) -> bool:
        """Whether fresh inputs may decide: errors are few, elements are finite, and memory can keep all inputs'
        values."""
        return self.few and self.free is None and self.exact.numel() <= FEW_ELEMENTS

    def is_clear(self, row: Mapping[str, Any]) -> bool:
        """Whether the figures of one input, a ``row`` of :meth:`judge`, decide. They do for many errors. Few errors may
        be far off, or well within what several inputs may err."""
        if not self.may_be_pooled or row["used"] is None or row["used"] > HOPELESS:
            return True
        return self.independent >= CLEAR_ERRORS and row["used"] * _ONE_OF_INPUTS <= CLEAR

    def is_clear_together(self, row: Mapping[str, Any]) -> bool:
        """Whether the figures of some inputs, a ``row`` of :meth:`pooled`, decide before all are tried."""
        used = row["used"]
        enough = self.independent * row["runs"] >= CLEAR_ERRORS
        return row["runs"] == 1 or used is None or used > HOPELESS or (enough and used <= CLEAR)

    def pooled(self, values: Sequence[torch.Tensor], draws: Sequence["Expected"]) -> dict[str, Any]:
        """The figures of several inputs together: this one and others, which ``draws`` expect. The root mean square may
        be twice PyTorch's over the same inputs, the maximum four times, and neither less than an epsilon of the values.
        Inputs that all give the same, as zeros do, are one input."""
        if all(torch.equal(draw.exact, self.exact) for draw in draws):
            return self.judge(values[0], Accuracy.FP32)
        every = [self, *draws]
        values = [as_real(value) for value in values]
        mine = [expected.figures_of(value) for expected, value in zip(every, values)]
        rms, maximum = _together((float(of.rms), float(of.maximum)) for of in mine)
        kinds = (e._other_kind(value) for e, value in zip(every, values) if e.eager is not None and e.free is not None)
        if (note := next(filter(None, kinds), "")) or not math.isfinite(rms):
            return self._row(ok=False, note=note or "an element is not finite where PyTorch's is", runs=len(every))
        eager = _together((e.eager_rms, e.eager_maximum) for e in every)
        size = _together((float(e.sizes.rms), float(e.sizes.maximum)) for e in every if e.sizes is not None)
        allowed = [
            max(factor * max(own, noise), FLOOR_OF_FEW * self.epsilon * of) + TINY
            for factor, own, noise, of in zip((RMS_FACTOR, MAX_FACTOR), eager, self.noise, size)
        ]
        lines = torch.stack(self._shares(mine[0])[2:]).tolist()
        used = max(rms / allowed[0], maximum / allowed[1], *lines)
        return row(
            rms=rms,
            maximum=maximum,
            eager_rms=eager[0],
            eager_maximum=eager[1],
            ratio=self._ratio(rms, eager[0]),
            used=used,
            ok=used <= 1.0,
            runs=len(every),
        )

    def _other_kind(self, value: torch.Tensor) -> str:
        """The fault of ``value`` where eager and float64 are both not finite; it may be like either of them."""
        assert self.eager is not None and self.free is not None
        mine, eager, exact = (x.reshape(-1)[self.free] for x in (value, self.eager, self.exact))
        same = (mine == eager) | (mine == exact) | (torch.isnan(mine) & (torch.isnan(eager) | torch.isnan(exact)))
        if self.otherwise is not None and self.allowed is not None:
            same |= (mine - self.otherwise).abs() <= self.allowed.maximum
        same |= self.either & ~torch.isfinite(mine)
        wrong = int((~torch.isfinite(eager) & ~torch.isfinite(exact) & ~same).sum())
        return f"{wrong} elements that are not finite in PyTorch are finite or of another kind" if wrong else ""

    def _row(self, **found: Any) -> dict[str, Any]:
        return row(eager_rms=self.eager_rms, eager_maximum=self.eager_maximum, **found)


def _come_twice(integers: torch.Tensor) -> bool:
    """Whether a row has a number twice; an order of elements has none."""
    rows = as_matrix(integers).sort(1).values
    return bool((rows[:, 1:] == rows[:, :-1]).any())


def _share_of(figure: torch.Tensor, bound: torch.Tensor) -> torch.Tensor:
    return (figure / (bound + TINY)).max().nan_to_num(nan=inf)


def _mostly_zero(values: Iterable[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows, and the columns, of which most elements are zero, given the parts of a matrix."""
    counts = [(zeros.float().mean(1), zeros.sum(0)) for zeros in (part == 0 for part in values)]
    rows, columns = zip(*counts)
    shares = torch.cat(rows)
    return shares >= MOSTLY_ZERO, torch.stack(columns).sum(0) >= MOSTLY_ZERO * len(shares)


def _middle_share(lines: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """The median share of ``lines`` in ``sizes``, zeros aside; NaN where all are zeros."""
    return (lines / torch.where(sizes > TINY, sizes, math.nan)).nanmedian()


def _allowed(error: Figures, size: Figures, factor: float, epsilon: float) -> Figures:
    """The tolerances of one input; ``factor`` times the usual ones over the whole."""
    return Figures(
        torch.maximum(factor * RMS_FACTOR * error.rms, FLOOR_RMS * epsilon * size.rms),
        torch.maximum(factor * MAX_FACTOR * error.maximum, FLOOR_MAX * epsilon * size.maximum),
        *(
            LINE_FACTOR * lines if length >= LINE_ELEMENTS else torch.full_like(lines, inf)
            for lines, length in ((error.rows, len(error.columns)), (error.columns, len(error.rows)))
        ),
    )


def _together(found: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """The root mean square and the maximum over several inputs, given those of each."""
    rms, maxima = zip(*found)
    return math.sqrt(sum(of * of for of in rms) / len(rms)), max(maxima)


def _errors_in(lines: torch.Tensor, sizes: torch.Tensor) -> float:
    """The number of independent errors in a line, from how much their root mean squares scatter. A mean square of ``n``
    errors has a relative variance of 2 / n. Infinite for too few lines."""
    step = max(1, len(lines) // _ENOUGH_OF_MANY)
    shares = (lines[::step] / (sizes[::step] + TINY)).cpu()
    shares = shares[shares > 0]
    if len(shares) < _ENOUGH_LINES:
        return inf
    low, high = torch.quantile(2 * shares.log(), _ONE_SIGMA).tolist()
    return max(1.0, 8 / max(high - low, TINY) ** 2)


def row(**found: Any) -> dict[str, Any]:
    """Error figures: the fields of ``CaseErrors`` but two."""
    figures = dict.fromkeys(("rms", "maximum", "eager_rms", "eager_maximum", "ratio", "used"))
    return figures | {"note": "", "runs": 1} | found
