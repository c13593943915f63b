"""The answers of the read side: plain dataclasses for the command line, the export and reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Mapping

from kgen.candidate import ParamValue, Plan
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy, Environment, LibraryProduct, Status, Timing
from kgen.store.rows import StoredEvaluation

if TYPE_CHECKING:
    from kgen.protocol.statistics import Interval


def side(speedup: float | None, low: float | None, high: float | None) -> str:
    """``fast`` where the whole interval lies above 1, ``slow`` where it lies below 1, else ``even``.

    Without an interval the speedup itself counts. ``unknown`` without a speedup.
    """
    low, high = (speedup if end is None else end for end in (low, high))
    if low is None or high is None:
        return "unknown"
    return "fast" if low > 1 else "slow" if high < 1 else "even"


@dataclass(frozen=True)
class ProblemRow:
    """A problem of the database. ``default_mode``: its mode is the one that its constructor sets.

    ``passed_by`` names the trivial answers that would pass as right: a result on this problem proves little.
    """

    id: str
    name: str
    mode: str
    default_mode: bool
    source_hash: str
    path: str
    overrides: Mapping[str, Any]
    passed_by: tuple[str, ...]

    @property
    def title(self) -> str:
        """The name with its overrides."""
        return Problem(self.name, self.path, "", tuple(self.overrides.items())).title


@dataclass(frozen=True)
class Trial:
    """A candidate of one sweep (or of one ``kgen eval``: ``kind``), with its figures against that sweep's baselines.

    ``final`` results were timed interleaved with the baselines and have an interval. The others were only screened.
    ``tie`` marks finalists within the interval of the sweep's fastest, and ``chosen`` the sweep's best. ``speedup`` is
    over ``baseline``, the fastest of ``baselines``. ``median_ms`` and ``baselines`` are in milliseconds, and come from
    the same samples as the speedup. ``screened_speedup`` is the speedup in the screening, where a caller asked for it.
    """

    sweep: str
    kind: str
    candidate: str
    number: int
    plan: str
    plan_data: Plan
    params: Mapping[str, ParamValue]
    rewrites: tuple[str, ...]
    kernels: int
    source_lines: int
    control: bool
    status: Status
    final: bool
    tie: bool
    chosen: bool
    median_ms: float | None
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    baseline: str | None
    baselines: Mapping[str, float]
    error_ratio: float | None
    screened_speedup: float | None = None

    @property
    def interval(self) -> Interval | None:
        """The speedup with its interval; ``None`` for a candidate that was only screened."""
        from kgen.protocol.statistics import Interval  # takes longer to import than most listings take

        if self.speedup is None or self.speedup_low is None or self.speedup_high is None:
            return None
        return Interval(self.speedup_low, self.speedup, self.speedup_high)

    @property
    def interval_ms(self) -> Interval | None:
        """The time with its interval, in milliseconds, beside the baseline; ``None`` for a screened candidate."""
        from kgen.protocol.statistics import Interval

        if self.median_ms is None or (speedup := self.interval) is None:
            return None
        beside = self.median_ms * speedup.mid
        return Interval(beside / speedup.high, self.median_ms, beside / speedup.low)

    @property
    def side(self) -> str:
        """``fast``, ``slow``, ``even`` or ``unknown`` (:func:`side`)."""
        return side(self.speedup, self.speedup_low, self.speedup_high)

    @property
    def too_busy(self) -> bool:
        """Whether the machine was too busy to tell this candidate from the fastest baseline."""
        return self.interval is not None and self.interval.cannot_tell


@dataclass(frozen=True)
class BestRow:
    """The best candidate of one problem in one environment, at one class of accuracy.

    ``trial`` is ``None`` where no candidate with a kernel of its own was right; ``sweep`` is then the latest one.
    ``ties`` counts the other candidates within the interval of the best.
    """

    problem: ProblemRow
    environment: Environment
    accuracy: Accuracy
    sweep: str
    trial: Trial | None
    ties: int

    @property
    def beats_baseline(self) -> bool:
        """Whether it is proven faster than every baseline: a finalist whose whole interval lies above 1."""
        return self.trial is not None and (self.trial.speedup_low or 0.0) > 1.0


@dataclass(frozen=True)
class SweepRow:
    """One sweep in a listing. ``state`` is ``running``, ``finished``, ``interrupted`` or ``failed``.

    ``kind`` is ``sweep``, or ``eval`` for one judged file, whose path is ``arguments["file"]``. ``counts`` are its
    candidates by status. ``best`` is its choice or, before that, its fastest screening so far.
    """

    id: str
    kind: str
    problem: ProblemRow
    environment: Environment
    accuracy: Accuracy
    device: str
    state: str
    combinations: int
    budget: int
    started_at: datetime
    seconds: float | None
    arguments: Mapping[str, Any]
    counts: Mapping[Status, int]
    best: Trial | None

    @property
    def has_kernels(self) -> bool:
        """Whether the sweep has candidates with kernels of kgen: without any, the control is the only combination."""
        return self.combinations > 1

    @property
    def tried(self) -> int:
        """The number of candidates that the sweep has judged."""
        return sum(self.counts.values())

    @property
    def right(self) -> int:
        """The number of candidates that were right and timed."""
        return self.counts.get(Status.OK, 0)

    @property
    def duplicates(self) -> int:
        """The number of candidates that have the same binary as another candidate."""
        return self.counts.get(Status.DUPLICATE, 0)

    @property
    def failed(self) -> int:
        """The number of candidates that failed."""
        return self.tried - self.right - self.duplicates


@dataclass(frozen=True)
class Failures:
    """The candidates of a sweep that failed in one way, with the first of them as an example."""

    status: Status
    count: int
    example: str
    reason: str


@dataclass(frozen=True)
class Rejections:
    """The combinations of a sweep that one constraint ruled out, with one of their reasons."""

    constraint: str
    count: int
    reason: str


@dataclass(frozen=True)
class SweepDetail:
    """One sweep in full.

    ``sizes`` are the problem's constants. ``baselines`` are the times in the finals, and ``screened_baselines`` the
    times in the screening, in milliseconds. ``taken_over`` counts evaluations of an earlier sweep.
    """

    row: SweepRow
    sizes: Mapping[str, Any]
    baselines: Mapping[str, float]
    screened_baselines: Mapping[str, float]
    leaders: tuple[Trial, ...]
    failures: tuple[Failures, ...]
    rejections: tuple[Rejections, ...]
    taken_over: int


@dataclass(frozen=True)
class Judgement:
    """One evaluation of a candidate: its problem, place and time, and the candidate's figures in each sweep."""

    evaluation: StoredEvaluation
    problem: ProblemRow
    environment: Environment
    created_at: datetime
    trials: tuple[Trial, ...]


@dataclass(frozen=True)
class CandidateDetail:
    """One candidate in full, its evaluations from the newest to the oldest.

    ``finals`` are its timings as a finalist, by sweep. ``rooflines`` are the stored work and ceilings of these sweeps,
    for :meth:`kgen.codegen.roofline.Basis.read`. ``products`` are the library's convolutions as these sweeps measured
    them.
    """

    id: str
    plan: str
    plan_data: Plan
    params: Mapping[str, ParamValue]
    rewrites: tuple[str, ...]
    device_type: str
    kernels: int
    source_lines: int
    control: bool
    origin: str
    proposed_by: str  #: the model, or the proposer, whose proposal it was first; empty where nobody proposed it
    source: str
    judgements: tuple[Judgement, ...]
    finals: Mapping[str, Timing]
    rooflines: Mapping[str, Mapping[str, Any]]
    products: Mapping[str, tuple[LibraryProduct, ...]]

    def products_of(self, judgement: Judgement) -> tuple[LibraryProduct, ...]:
        """The library's convolutions as they were when the candidate was judged."""
        return next((self.products[trial.sweep] for trial in judgement.trials if self.products.get(trial.sweep)), ())


@dataclass(frozen=True)
class Compared:
    """One side of a comparison: a candidate's id or a baseline's name, with its time in a sweep, in milliseconds."""

    subject: str
    sweep: str
    median_ms: float


@dataclass(frozen=True)
class Comparison:
    """``b`` against ``a``. ``what`` is ``best``, ``candidate``, or a baseline's name.

    ``ratio`` is the time of ``a`` divided by the time of ``b``: the speedup of ``b``. ``verdict`` on ``b`` is
    ``faster``, ``slower``, ``same`` or ``cannot tell``. ``how`` is the relation of the two timings. ``environment`` is
    ``None`` for a comparison of two environments.
    """

    problem: ProblemRow
    accuracy: Accuracy
    environment: Environment | None
    what: str
    a: Compared
    b: Compared
    ratio: Interval
    verdict: str
    how: str


@dataclass(frozen=True)
class Known:
    """A right candidate of an earlier sweep: its plan and parameters.

    ``slower`` is its time divided by the time of the fastest candidate of the same problem.
    """

    plan: str
    params: Mapping[str, ParamValue]
    slower: float
