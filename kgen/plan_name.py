"""Names of plans: how they are printed. Steps are read from :mod:`kgen.plan`, and never from a name.

    linear(library) + SCHEDULE[gelu, softmax] after merge_affine        one mode
    train: ... / eval: ...                                              a plan for each of both modes

SCHEDULE is the name of a template. The K-th kernel's parameters are named ``kK.axis``, with ``train.`` or ``eval.`` in
front where there are plans for both modes. Equal names are equal plans.
"""

from __future__ import annotations

from typing import Sequence

from kgen.plan import Plan, PlanStep


def of(plan: Plan) -> str:
    """The name of a plan."""
    names = [(mode, _of_mode([step for step in plan.steps if step.mode == mode], names)) for mode, names in plan.rewrites]
    return " / ".join(f"{mode}: {name}" if mode else name for mode, name in names)


def _of_mode(steps: Sequence[PlanStep], rewrites: Sequence[str]) -> str:
    shown = [of_kernel(s.schedule, s.operators) if s.schedule else f"{s.operators[0]}(library)" for s in steps]
    return " + ".join(shown) + (f" after {', '.join(rewrites)}" if rewrites else "")


def of_kernel(schedule: str, operators: Sequence[str]) -> str:
    """A kernel as a plan's name shows it."""
    return f"{schedule}[{', '.join(operators)}]"
