"""Plans whose kernels a proposer has chosen, as options of a design."""

from __future__ import annotations

from kgen.compiler.fusion.chosen import Cut, CutError, chosen
from kgen.tuning.design import Design, usable


def cut(design: Design, by: Cut) -> int:
    """The number of the option that has a cut's kernels. Raises :class:`CutError` for one that makes no
    plan."""
    if len(design.choices[0].plans) > 1:
        raise CutError("kernels can be chosen for one mode alone: name a plan")
    mode, graph = design.capture.graphs[0]
    return design.add(((mode, chosen(graph, usable(design.hardware), by)),))


def schedules(design: Design) -> tuple[str, ...]:
    """The names of the schedules that the device can run."""
    return tuple(template.name for template in usable(design.hardware))
