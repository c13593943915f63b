"""Medians, intervals and verdicts, derived from raw samples. Standard library only.

Samples within a block are not independent, so blocks are the unit: a subject's time is the median of its blocks'
medians, and intervals come from resampling whole blocks (percentile bootstrap; Efron and Tibshirani, "An Introduction
to the Bootstrap", 1993, chapter 13).
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import median
from typing import Callable, Iterable, Sequence

from kgen.evaluator.protocol import Timing

#: Two processes that run the same code differ by up to this share of their time, however often one measures.
RESOLUTION = 0.01

Blocks = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Interval:
    """A confidence interval with the estimate in it."""

    low: float
    mid: float
    high: float

    @property
    def width(self) -> float:
        """Width relative to the estimate."""
        return (self.high - self.low) / self.mid if self.mid else float("inf")


@dataclass(frozen=True)
class Rank:
    """One place in a ranking; ``tie`` marks those that cannot be told from the fastest."""

    timing: Timing
    tie: bool


def block_medians(timing: Timing | Blocks) -> list[float]:
    """The median of each block, in milliseconds."""
    blocks = timing.blocks if isinstance(timing, Timing) else timing
    return [median(block) for block in blocks if block]


def median_ms(timing: Timing | Blocks) -> float:
    """The median of the blocks' medians, in milliseconds. Raises ``ValueError`` where there is no sample."""
    medians = block_medians(timing)
    if not medians:
        raise ValueError("no samples")
    return median(medians)


def ratio_interval(
    numerator: Timing, denominator: Timing, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """The ratio of two subjects' times, with its bootstrap interval over blocks.

    Blocks of one session were interleaved, so each round gives one ratio, and the median of these is taken: what
    slows the machine for longer than a round slows both. (Where a third of the blocks is disturbed, its interval is
    half as wide as that of the ratio of medians.) Subjects of unlike sessions are compared by their medians. Raises
    ``ValueError`` where one has no sample.
    """
    above, below = block_medians(numerator), block_medians(denominator)
    if not above or not below:
        raise ValueError("no samples")
    generator = random.Random(seed)
    if numerator.session == denominator.session and len(above) == len(below):
        rounds = [a / b for a, b in zip(above, below)]
        mid = median(rounds)
        ratios = [median(generator.choices(rounds, k=len(rounds))) for _ in range(resamples)]
    else:
        mid = median(above) / median(below)
        ratios = [
            median(generator.choices(above, k=len(above))) / median(generator.choices(below, k=len(below)))
            for _ in range(resamples)
        ]
    ratios.sort()
    cut = int((1 - confidence) / 2 * (resamples - 1))
    return Interval(min(ratios[cut], mid), mid, max(ratios[-1 - cut], mid))


def median_interval(
    timing: Timing | Blocks, *, confidence: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval:
    """A subject's time in milliseconds, with its bootstrap interval over blocks.

    It holds for the session alone: what slowed the machine for all of it is in it. Raises ``ValueError`` where there is
    no sample.
    """
    medians = block_medians(timing)
    if not medians:
        raise ValueError("no samples")
    generator = random.Random(seed)
    drawn = sorted(median(generator.choices(medians, k=len(medians))) for _ in range(resamples))
    cut = int((1 - confidence) / 2 * (resamples - 1))
    mid = median(medians)
    return Interval(min(drawn[cut], mid), mid, max(drawn[-1 - cut], mid))


def quotient(above: Interval, below: Interval) -> Interval:
    """The quotient of two estimates that were made apart: errors of independent factors add in quadrature where factors
    are added, on a logarithmic scale (the delta method; Casella and Berger, "Statistical Inference", 2002, 5.5.4)."""
    mid = above.mid / below.mid
    down = math.hypot(math.log(above.mid / above.low), math.log(below.high / below.mid))
    up = math.hypot(math.log(above.high / above.mid), math.log(below.mid / below.low))
    return Interval(mid * math.exp(-down), mid, mid * math.exp(up))


def explained(groups: Iterable[Sequence[float]]) -> float:
    """How much of the spread of all values it explains which group each is in, between 0 and 1.

    The unbiased correlation ratio (Kelley, "An Unbiased Correlation Ratio Measure", 1935): the variance between groups
    over the whole variance, less what as many groups of this size would explain by chance. 0 where no two values share
    a group, which says nothing.
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
    """What a speedup's interval says: ``faster``, ``slower``, ``same`` (within the resolution) or ``cannot tell``."""
    if interval.low > 1 + resolution:
        return "faster"
    if interval.high < 1 - resolution:
        return "slower"
    if interval.low >= 1 - 2 * resolution and interval.high <= 1 + 2 * resolution:
        return "same"
    return "cannot tell"


def leaders(timings: Sequence[Timing], tie_break: Callable[[Timing], tuple] | None = None) -> list[Rank]:
    """``timings`` from the best to the slowest.

    The fastest is the one that comes off best against its strongest rival, head to head: it beats every other, if one
    does. Those that cannot be told from it are tied with it, and come first in the order of ``tie_break`` (by subject,
    if it is not given); the others follow by their medians.
    """
    if not timings:
        return []
    order = sorted(timings, key=median_ms)
    fastest = min(order, key=lambda timing: max(_ratio(timing, rival) for rival in order))
    key = tie_break or (lambda timing: (timing.subject,))
    tied = [t for t in order if t is fastest or verdict(ratio_interval(fastest, t)) != "slower"]
    rest = [t for t in order if t not in tied]
    return [*(Rank(t, len(tied) > 1) for t in sorted(tied, key=key)), *(Rank(t, False) for t in rest)]


def _ratio(numerator: Timing, denominator: Timing) -> float:
    return ratio_interval(numerator, denominator, resamples=1).mid
