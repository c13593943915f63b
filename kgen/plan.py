"""Fusion plans as data: the compiler makes them, the database keeps them as JSON, and views and reports read their steps.

    {"steps": [{"mode": "", "schedule": "", "operators": ["linear"], "kernel": ""},
               {"mode": "", "schedule": "SCHEDULE", "operators": ["gelu", "softmax"], "kernel": "k0"}],
     "rewrites": {"": ["merge_affine"]}}

In a plan for both modes, steps and rewrites have the mode ``train`` or ``eval``, and kernels are named ``train.k0``.
A file from outside has no plan: ``{}``. :mod:`kgen.plan_name` prints plans.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Iterable, Mapping, Sequence, TypeVar

MODES = ("train", "eval")  #: of a plan for both modes, in their order

_WORD = re.compile(r"[\w.]+")  # names of schedules, operators and rewrites

T = TypeVar("T")


@dataclass(frozen=True)
class PlanStep:
    """One step of a plan: a kernel with its schedule, or a library call, whose schedule is empty.

    ``mode`` is empty in a plan for one mode. ``kernel`` is what the names of the kernel's parameters begin with, without
    the dot: ``k0``, ``train.k1``.
    """

    mode: str
    schedule: str
    operators: tuple[str, ...]
    kernel: str = ""

    def own(self, params: Mapping[str, T]) -> dict[str, T]:
        """The kernel's own parameters among those of a candidate, by the names of their axes."""
        prefix = f"{self.kernel}."
        return {name.removeprefix(prefix): value for name, value in params.items() if name.startswith(prefix)}

    def to_json(self) -> dict[str, Any]:
        """The step as JSON values."""
        return {"mode": self.mode, "schedule": self.schedule, "operators": list(self.operators), "kernel": self.kernel}


@dataclass(frozen=True)
class Plan:
    """The steps of a plan in their order, and by mode the rewrites that its name shows. No plan has no mode."""

    steps: tuple[PlanStep, ...] = ()
    rewrites: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of_mode(cls, steps: Iterable[tuple[str, Sequence[str]]], rewrites: Sequence[str] = ()) -> Plan:
        """A plan for one mode. Steps are given as schedule and operators; the schedule of a library call is empty."""
        return cls(_numbered("", steps), (("", tuple(rewrites)),))

    @classmethod
    def of_modes(cls, plans: Sequence[tuple[str, Plan]]) -> Plan:
        """The plan of plans for one mode each, given by their modes; a single one stays as it is."""
        if len(plans) == 1:
            return plans[0][1]
        steps = (_numbered(mode, ((s.schedule, s.operators) for s in plan.steps)) for mode, plan in plans)
        return cls(sum(steps, ()), tuple((mode, names) for mode, plan in plans for _, names in plan.rewrites))

    def to_json(self) -> dict[str, Any]:
        """The plan as JSON values."""
        if not self.rewrites:
            return {}
        return {"steps": [step.to_json() for step in self.steps], "rewrites": {mode: list(names) for mode, names in self.rewrites}}

    @classmethod
    def from_json(cls, value: Any) -> Plan:
        """The inverse of :meth:`to_json`. Raises ``ValueError``, one line, for a value that it never returns."""
        if value == {}:
            return cls()
        found = _object(value, "the plan", ("steps", "rewrites"))
        rewrites = found["rewrites"]
        if not isinstance(rewrites, Mapping) or set(rewrites) not in ({""}, set(MODES)):
            raise ValueError(f"its rewrites are {rewrites!r:.80}, and must be given for {' and '.join(MODES)}, or for ''")
        by_mode = {mode: _words(rewrites[mode], "the rewrites") for mode in ("", *MODES) if mode in rewrites}
        if not isinstance(found["steps"], list):
            raise ValueError(f"its steps are {found['steps']!r:.80}, which is no list")
        steps = tuple(map(_step, found["steps"]))
        shown = {mode: [(step.schedule, step.operators) for step in steps if step.mode == mode] for mode in by_mode}
        plan = cls.of_modes([(mode, cls.of_mode(shown[mode], names)) for mode, names in by_mode.items()])
        for step, wanted in zip(steps, (*plan.steps, None)):
            if step != wanted:
                raise ValueError(f"its step {step.to_json()!r:.160} has another mode or kernel than its place says")
        return plan


def _numbered(mode: str, steps: Iterable[tuple[str, Sequence[str]]]) -> tuple[PlanStep, ...]:
    """The steps of one mode. Kernels are numbered from 0."""
    found: list[PlanStep] = []
    kernels = 0
    for schedule, operators in steps:
        kernel = f"{mode}.k{kernels}" if mode else f"k{kernels}"
        found.append(PlanStep(mode, schedule, tuple(operators), kernel if schedule else ""))
        kernels += bool(schedule)
    return tuple(found)


def _step(value: Any) -> PlanStep:
    """A step from its JSON value."""
    found = _object(value, "a step", ("mode", "schedule", "operators", "kernel"))
    schedule, operators = found["schedule"], _words(found["operators"], "the operators of a step")
    if schedule != "":
        _words([schedule], "the schedule of a step")
    elif len(operators) != 1:
        raise ValueError(f"a library call has one operator, not {found['operators']!r:.80}")
    return PlanStep(found["mode"], schedule, operators, found["kernel"])


def _object(value: Any, what: str, keys: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or set(value) != set(keys):
        raise ValueError(f"{what} is {value!r:.80}, and must be an object of {', '.join(keys)}")
    return value


def _words(value: Any, what: str) -> tuple[str, ...]:
    """Names in a list."""
    if not isinstance(value, list) or not all(isinstance(word, str) and _WORD.fullmatch(word) for word in value):
        raise ValueError(f"{what} are {value!r:.80}, and must be a list of names")
    return tuple(value)
