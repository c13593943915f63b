"""Medians, intervals and verdicts, derived from raw samples. Standard library only.

Samples of one block depend on each other, so blocks are the unit. The time of a subject is the median of the medians
of its blocks. Intervals come from resampling whole blocks: a percentile bootstrap (Efron and Tibshirani, "An
Introduction to the Bootstrap", 1993, chapter 13).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Callable, Iterable, Sequence

from kgen.protocol import Timing

#: Share of a time; two processes with the same code differ by up to this; benchmarks/results/timing.md
RESOLUTION = 0.01

Blocks = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Interval:
    """A confidence interval around its estimate."""

    low: float
    mid: float
    high: float

    @property
    def width(self) -> float:
        """The width as a multiple of the estimate."""
        return (self.high - self.low) / self.mid if self.mid else float("inf")

    def times(self, factor: float) -> Interval:
        """The interval of ``factor`` times the value."""
        return Interval(self.low * factor, self.mid * factor, self.high * factor)

    @property
    def cannot_tell(self) -> bool:
        """Whether a speedup with this interval is neither faster, slower nor the same: the machine was too busy."""
        return self.low <= 1.0 <= self.high and verdict(self) == "cannot tell"


@dataclass(frozen=True)
class Standing:
    """A subject beside a reference: its time in milliseconds and its speedup over the reference.

    Both come from the same samples: ``ms * speedup.mid`` is the time of the reference.
    """

    timing: Timing
    ms: float
    speedup: Interval


@dataclass(frozen=True)
class Rank:
    """One place in a ranking. ``tie`` marks subjects within the interval of the fastest one."""

    timing: Timing
    tie: bool


def block_medians(timing: Timing | Blocks) -> list[float]:
    """The median of each block, in milliseconds."""
    blocks = timing.blocks if isinstance(timing, Timing) else timing
    return [median(block) for block in blocks if block]


def median_ms(timing: Timing | Blocks) -> float:
    """The median of the blocks' medians, in milliseconds. Raises ``ValueError`` for a timing without samples."""
    medians = block_medians(timing)
    if not medians:
        raise ValueError("no samples")
    return median(medians)


def ratio_interval(
    numerator: Timing, denominator: Timing, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """The ratio of two subjects' times, with its bootstrap interval over blocks.

    Blocks of one session are interleaved: each round gives one ratio, and the estimate is the median of these. A slow
    phase of the machine that outlasts a round slows both subjects and cancels. (With a third of the blocks disturbed,
    this interval is half as wide as that of the ratio of medians.) Subjects of different sessions are compared by their
    medians. Raises ``ValueError`` for a timing without samples.
    """
    above, below = block_medians(numerator), block_medians(denominator)
    if not above or not below:
        raise ValueError("no samples")
    if numerator.session == denominator.session and len(above) == len(below):
        rounds = [a / b for a, b in zip(above, below)]
        mid = median(rounds)
        ratios = [_median_of(rounds, drawn) for (drawn,) in _draws((len(rounds),), resamples, seed)]
    else:
        mid = median(above) / median(below)
        ratios = [
            _median_of(above, of_above) / _median_of(below, of_below)
            for of_above, of_below in _draws((len(above), len(below)), resamples, seed)
        ]
    ratios.sort()
    cut = int((1 - confidence) / 2 * (resamples - 1))
    return Interval(min(ratios[cut], mid), mid, max(ratios[-1 - cut], mid))


@lru_cache(maxsize=4)
def _draws(sizes: tuple[int, ...], resamples: int, seed: int) -> list[list[list[int]]]:
    """The indices of bootstrap resamples of samples of these sizes. Most timings of a sweep have equally many
    blocks."""
    generator = random.Random(seed)
    return [[generator.choices(range(size), k=size) for size in sizes] for _ in range(resamples)]


def _median_of(values: Sequence[float], indices: Iterable[int]) -> float:
    return median([values[index] for index in indices])


def standing(reference: Timing, timing: Timing) -> Standing:
    """The time and the speedup of ``timing`` beside ``reference``, both from one estimate: the ratio of their times.

    Raises ``ValueError`` for a timing without samples.
    """
    speedup = ratio_interval(reference, timing)
    return Standing(timing, median_ms(reference) / speedup.mid, speedup)


def median_interval(
    timing: Timing | Blocks, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """A subject's time in milliseconds, with its bootstrap interval over blocks.

    The interval describes this session alone, and includes a slow phase of the machine. Raises ``ValueError`` for a
    timing without samples.
    """
    medians = block_medians(timing)
    if not medians:
        raise ValueError("no samples")
    drawn = sorted(_median_of(medians, indices) for (indices,) in _draws((len(medians),), resamples, seed))
    cut = int((1 - confidence) / 2 * (resamples - 1))
    mid = median(medians)
    return Interval(min(drawn[cut], mid), mid, max(drawn[-1 - cut], mid))


def quotient(above: Interval, below: Interval) -> Interval:
    """The quotient of two independent estimates.

    Their errors add in quadrature on a logarithmic scale (the delta method; Casella and Berger, "Statistical
    Inference", 2002, 5.5.4).
    """
    mid = above.mid / below.mid
    down = math.hypot(math.log(above.mid / above.low), math.log(below.high / below.mid))
    up = math.hypot(math.log(above.high / above.mid), math.log(below.mid / below.low))
    return Interval(mid * math.exp(-down), mid, mid * math.exp(up))


def explained(groups: Iterable[Sequence[float]]) -> float:
    """The share of the spread of all values that their groups explain, between 0 and 1.

    This is the unbiased correlation ratio (Kelley, "An Unbiased Correlation Ratio Measure", 1935). It is the variance
    between groups over the whole variance, less the share that as many random groups explain. The result is 0 where no
    two values share a group.
    """
    filled = [group for group in groups if group]
    count = sum(map(len, filled))
    if count <= len(filled):
        return 0.0
    mean = sum(map(sum, filled)) / count
    whole = sum((value - mean) ** 2 for group in filled for value in group)
    means = (sum(group) / len(group) for group in filled)
    within = sum((value - mean) ** 2 for group, mean in zip(filled, means, strict=True) for value in group)
    by_chance = within / (count - len(filled)) * (len(filled) - 1)
    return max(0.0, (whole - within - by_chance) / whole) if whole else 0.0


def verdict(interval: Interval, resolution: float = RESOLUTION) -> str:
    """The verdict on a speedup: ``faster``, ``slower``, ``same`` (within the resolution) or ``cannot tell``."""
    if interval.low > 1 + resolution:
        return "faster"
    if interval.high < 1 - resolution:
        return "slower"
    if interval.low >= 1 - 2 * resolution and interval.high <= 1 + 2 * resolution:
        return "same"
    return "cannot tell"


def fastest(timings: Sequence[Timing]) -> Timing:
    """The fastest of ``timings``, head to head: the one whose worst ratio to a rival is the best.

    A subject that beats every rival is always the fastest. Raises ``ValueError`` for no timings.
    """
    order = sorted(timings, key=median_ms)
    return min(order, key=lambda timing: max(_ratio(timing, rival) for rival in order))


def leaders(timings: Sequence[Timing], tie_break: Callable[[Timing], tuple] | None = None) -> list[Rank]:
    """``timings`` from the best to the slowest.

    Subjects within the interval of the :func:`fastest` are tied with it. Those that may be as fast, and are measured
    within the resolution, come first. Their order is that of ``tie_break`` (default: by subject). The others follow by
    their medians: a wide interval alone, as of a busy machine, puts no slower subject first.
    """
    if not timings:
        return []
    first = fastest(timings)
    order = sorted(timings, key=median_ms)
    key = tie_break or (lambda timing: (timing.subject,))
    ratios = [ratio_interval(first, t) for t in order]
    tied = [t for t, ratio in zip(order, ratios) if t is first or verdict(ratio) != "slower"]
    near = [t for t, ratio in zip(order, ratios) if t is first or ratio.high >= 1.0 and ratio.mid > 1 - RESOLUTION]
    ranked = [*sorted(near, key=key), *(t for t in order if t not in near)]
    return [Rank(t, len(tied) > 1 and t in tied) for t in ranked]


def _ratio(numerator: Timing, denominator: Timing) -> float:
    return ratio_interval(numerator, denominator, resamples=1).mid
