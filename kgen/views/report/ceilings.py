"""The rows of the roofline: the ceilings of the device, and the rates of the leaders and of PyTorch.

After Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", 2009. Work and ceilings are
those of :mod:`kgen.codegen.roofline`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Iterable

from kgen.codegen import roofline
from kgen.codegen.registry import arithmetic
from kgen.codegen.roofline import Arithmetic, Basis, Roofline
from kgen.store.results import Trial
from kgen.views import text
from kgen.views.report.rows import Described, described
from kgen.views.report.sections import Section

MOST_REACHED = 15  #: candidates; limit of those that are shown, the leaders
_MARGIN = 8.0  #: factor; how far the ceilings extend beyond the problem and the last corner


@dataclass(frozen=True)
class Roof:
    """A point of a ceiling: operations per byte moved, and the rate that the device can reach there.

    One point of each ceiling has its name: as ``level`` for arithmetic, as ``sloped`` for memory.
    """

    type: str
    intensity: float
    tflops: float
    gbytes: float
    level: str = ""
    sloped: str = ""


@dataclass(frozen=True)
class Reached(Described):
    """The rate of a candidate or a baseline, beside the ceiling of its arithmetic."""

    rate: str
    intensity: float
    tflops: float | None
    gbytes: float


def basis(section: Section) -> Basis | None:
    """Work and ceilings from the latest sweep that stored them; ``None`` where none did."""
    found = (Basis.read(row.arguments.get("roofline")) for row in section.compared)
    return next((item for item in found if item), None)


def reached(section: Section, of: Basis) -> tuple[Reached, ...]:
    """The leaders, then the baselines, the fastest first."""
    accuracy = section.best.accuracy
    intensity = of.work.flops / of.work.nbytes
    found = []
    for trial in section.right[:MOST_REACHED]:
        if (ms := section.ms(trial)) is not None:
            line = roofline.of(of, ms, arithmetic_of(section, trial))
            found.append(_reached(described(section, trial, trial.error_ratio), line, intensity))
    for name, ms in sorted(section.baselines.items(), key=lambda item: item[1]):
        line = roofline.of(of, ms, Arithmetic.of_library(accuracy))
        beside = Described(name, text.MISSING, text.milliseconds(ms), text.error_ratio(1.0), "a baseline")
        found.append(_reached(beside, line, intensity))
    return tuple(found)


def _reached(item: Described, line: Roofline, intensity: float) -> Reached:
    return Reached(**vars(item), rate=str(line), intensity=intensity, tflops=line.tflops, gbytes=line.gbytes_per_second)


def roofs(section: Section, of: Basis) -> tuple[Roof, ...]:
    """The known ceilings: a sloped line for memory, and a level line for each arithmetic in use."""
    copy = of.ceilings.copy_gbytes_per_second
    peaks = dict(_peaks(section, of))
    knees = [1e3 * peak / copy for peak in peaks.values() if copy]
    shown = [of.work.flops / of.work.nbytes, *knees]
    low, high = min(shown) / _MARGIN, max(shown) * _MARGIN
    found = []
    for name, peak in peaks.items():
        knee = 1e3 * peak / copy if copy else low
        label = f"{name}: {peak:.3g} TFLOP/s"
        found += [_level(name, knee, peak), replace(_level(name, high, peak), level=label)]
    if copy:
        end = max(knees, default=high)
        middle = replace(_memory((low * low * end) ** (1 / 3), copy), sloped=f"memory: {copy:.4g} GB/s")
        found += [_memory(low, copy), middle, _memory(end, copy)]
    return tuple(found)


def _level(name: str, intensity: float, peak: float) -> Roof:
    return Roof(name, intensity, peak, 1e3 * peak / intensity)


def _memory(intensity: float, copy: float) -> Roof:
    return Roof("memory", intensity, copy * intensity / 1e3, copy)


def arithmetic_of(section: Section, trial: Trial) -> Arithmetic:
    """How a candidate's contractions are multiplied."""
    best = section.best
    return arithmetic(best.environment.device_type, trial.plan_data, trial.params, best.accuracy)


def _peaks(section: Section, of: Basis) -> Iterable[tuple[str, float]]:
    """TFLOP/s of each arithmetic that a leader or PyTorch uses, where the ceiling is known."""
    accuracy = section.best.accuracy
    used = [Arithmetic.of_library(accuracy)]
    used += [arithmetic_of(section, trial) for trial in section.right[:MOST_REACHED]]
    for item in dict.fromkeys(map(of.arithmetic, used)) if of.work.flops else ():
        peak = of.ceilings.tflops(item.type)
        if peak:
            yield str(item), peak / item.products
