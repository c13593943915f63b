"""Names of plans: how they are written, and how they are read back.

    linear(library) + SCHEDULE[gelu, softmax] after drop_identity        one mode
    train: ... / eval: ...                                              a plan for each of both modes

SCHEDULE is the name of a template. The K-th kernel's parameters are named ``kK.axis``, with ``train.`` or ``eval.`` in
front where there are plans for both modes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping, Sequence, TypeVar

_STEP = re.compile(r"(?P<schedule>\w+)\[(?P<operators>[^\]]*)\]|(?P<call>[^\[\]+]+?)\(library\)")
_WAY = re.compile(r"(?:^| / )(train|eval): (.*?)(?= / (?:train|eval): |$)")

T = TypeVar("T")


@dataclass(frozen=True)
class NamedStep:
    """One step of a plan: a kernel with its schedule, or a library call, whose schedule is empty.

    ``kernel`` is what the names of the kernel's parameters begin with, without the dot: ``k0``, ``train.k1``.
    """

    mode: str
    operators: tuple[str, ...]
    schedule: str = ""
    kernel: str = ""

    def own(self, params: Mapping[str, T]) -> dict[str, T]:
        """The kernel's own parameters among those of a candidate, by the names of their axes."""
        prefix = f"{self.kernel}."
        return {name.removeprefix(prefix): value for name, value in params.items() if name.startswith(prefix)}


def of_kernel(schedule: str, operators: Sequence[str]) -> str:
    """A kernel as a plan's name shows it."""
    return f"{schedule}[{', '.join(operators)}]"


def of_library(operator: str) -> str:
    """A library call as a plan's name shows it."""
    return f"{operator}(library)"


def of_plan(steps: Sequence[str], rewrites: Sequence[str]) -> str:
    """The name of a plan for one mode."""
    return " + ".join(steps) + (f" after {', '.join(rewrites)}" if rewrites else "")


def of_modes(names: Sequence[tuple[str, str]]) -> str:
    """The name of plans for one mode or for both, each given as ``(mode, name)``."""
    return names[0][1] if len(names) == 1 else " / ".join(f"{mode}: {name}" for mode, name in names)


def read(plan: str) -> tuple[NamedStep, ...]:
    """The steps that a plan's name shows, in order; none for a text that is no plan's name."""
    found: list[NamedStep] = []
    for mode, way in _WAY.findall(plan) or [("", plan)]:
        number = 0
        for step in _STEP.finditer(way):
            if step["call"] is not None:
                found.append(NamedStep(mode, (step["call"].strip(),)))
                continue
            kernel = f"{mode}.k{number}" if mode else f"k{number}"
            found.append(NamedStep(mode, tuple(step["operators"].split(", ")), step["schedule"], kernel))
            number += 1
    return tuple(found)
