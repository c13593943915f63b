"""A fusion plan drawn: one line for each operator, with the kernels marked beside them.

linear    library
gelu    ┐ k0 SCHEDULE: block=256 reduction=warp_shuffle
softmax ┘
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Mapping

from kgen.candidate import ParamValue, Plan, PlanStep
from kgen.views import text

LIBRARY = "library"


@dataclass(frozen=True)
class Link:
    """One operator of the chain, its bracket with the neighbours, and its kernel, which stands beside the first one."""

    operator: str
    bracket: str
    runs: str


def links(plan: Plan, params: Mapping[str, ParamValue]) -> list[Link]:
    """The chain of a plan, with the parameters of each kernel; of a plan for both modes, train first."""
    return [link for step in plan.steps for link in _links(step, params)]


def _links(step: PlanStep, params: Mapping[str, ParamValue]) -> Iterator[Link]:
    if not step.schedule:
        yield Link(step.operators[0], "", LIBRARY + (f" in {step.mode} mode" if step.mode else ""))
        return
    own = step.own(params)
    runs = f"{step.kernel} {step.schedule}" + (f": {text.params(own)}" if own else "")
    for place, operator in enumerate(step.operators):
        yield Link(operator, _bracket(place, len(step.operators)), "" if place else runs)


def _bracket(place: int, count: int) -> str:
    if count == 1:
        return "─"
    return "┐" if place == 0 else "┘" if place == count - 1 else "│"
