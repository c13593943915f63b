"""Candidates: a plan with its parameters filled in, rendered to source, named by the hash of that source.

The compiler makes fusion plans, the database keeps them as JSON, and views and reports read their steps:

    {"steps": [{"mode": "", "schedule": "", "operators": ["linear"], "kernel": ""},
               {"mode": "", "schedule": "SCHEDULE", "operators": ["gelu", "softmax"], "kernel": "k0"}],
     "rewrites": {"": ["merge_affine"]}}

In a plan for both modes, steps and rewrites have the mode ``train`` or ``eval``, and kernels are named ``train.k0``.
A file from outside has no plan: ``{}``. The name of a plan is printed for people, and never read:

    linear(library) + SCHEDULE[gelu, softmax] after merge_affine        one mode
    train: ... / eval: ...                                              a plan for each of both modes

SCHEDULE is the name of a template. The K-th kernel's parameters are named ``kK.axis``, with ``train.`` or ``eval.`` in
front where there are plans for both modes.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any, Iterable, Mapping, Sequence, TypeVar

#: A value of one parameter: block size, reduction strategy, ...
ParamValue = int | float | str | bool

#: Parameters by name. Parameters of the K-th kernel of a plan are named ``kK.axis`` (``k0.block``).
Params = Mapping[str, ParamValue]

LAUNCHING = "launching"  #: a parameter of a whole candidate, where forward is launched in another way than by Python
CALL, GRAPH = WAYS = "call", "graph"  #: its values: one call of C does all of forward, or a CUDA graph is replayed

COUNTABLE = (
    1 << 31
) - 1  #: combinations; the largest integer of a column in every database, which stands for more, too
SHORT = 12  #: how many characters of an identity people are shown

#: The function of a rendered file that runs kernels: pointers are among its arguments. One that begins a part of an
#: allocation has unused bytes of the allocation in front of it, :data:`GAP` at least.
LAUNCH, GAP = "launch", 256
ENTRY = "_entry"  #: the function of a rendered file that does all of forward in one call of C, or returns None

#: Kernels of a plan. A problem with no more is tuned as whole files, and its kernels are not timed inside of them.
FEW_KERNELS = 12

MODES = ("train", "eval")  #: of a plan for both modes, in their order

_WORD = re.compile(r"[\w.]+")  # names of schedules, operators and rewrites

T = TypeVar("T")


@dataclass(frozen=True)
class PlanStep:
    """One step of a plan: a kernel with its schedule, or a library call, whose schedule is empty.

    ``mode`` is empty in a plan for one mode. ``kernel`` is what the names of the kernel's parameters begin with,
    without the dot: ``k0``, ``train.k1``.
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

    @property
    def name(self) -> str:
        """The plan for people. Equal names are equal plans."""
        names = [
            (mode, _name([step for step in self.steps if step.mode == mode], names)) for mode, names in self.rewrites
        ]
        return " / ".join(f"{mode}: {name}" if mode else name for mode, name in names)

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
        return {
            "steps": [step.to_json() for step in self.steps],
            "rewrites": {mode: list(names) for mode, names in self.rewrites},
        }

    @classmethod
    def from_json(cls, value: Any) -> Plan:
        """The inverse of :meth:`to_json`. Raises ``ValueError``, one line, for a value that it never returns."""
        if value == {}:
            return cls()
        found = _object(value, "the plan", ("steps", "rewrites"))
        rewrites = found["rewrites"]
        if not isinstance(rewrites, Mapping) or set(rewrites) not in ({""}, set(MODES)):
            raise ValueError(
                f"its rewrites are {rewrites!r:.80}, and must be given for {' and '.join(MODES)}, or for ''"
            )
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


class Trust(StrEnum):
    """How far a candidate's text is trusted; it decides how strictly the evaluator judges it."""

    OWN = "own"  #: kgen renders the same text again, byte for byte
    FOREIGN = "foreign"  #: everything else: files of users, imported or proposed text


@dataclass(frozen=True)
class Candidate:
    """One rendered ``ModelNew``.

    ``id`` is the SHA-256 of ``source`` in hexadecimal, so that the same text is the same candidate everywhere.
    ``plan`` is the readable name of the fusion plan, and ``plan_data`` the plan itself. A file
    from outside has no plan.
    ``origin`` is own where rendering gives this text, byte for byte, and foreign otherwise.
    ``control`` marks a candidate without a kernel of its own. It is shown, and never exported as a speedup.
    ``kernels`` counts its own kernels: the first tie-break between equally fast candidates. ``functions`` are their
    launchers in the order of the kernels, where kgen has just rendered the text.
    """

    source: str
    plan: str
    params: Params
    device_type: str  # "cuda" or "cpu"
    kernels: int = 0
    control: bool = False
    origin: Trust = Trust.OWN
    rewrites: tuple[str, ...] = ()
    plan_data: Plan = Plan()
    functions: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def id(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()

    @property
    def source_lines(self) -> int:
        return self.source.count("\n") + 1


@dataclass(frozen=True)
class Rejection:
    """A combination that a constraint ruled out before rendering, with the reason in one line."""

    plan: str
    params: Params
    constraint: str
    reason: str


def kernel_label(schedule: str, operators: Sequence[str]) -> str:
    """A kernel as a plan's name shows it."""
    return f"{schedule}[{', '.join(operators)}]"


def _name(steps: Sequence[PlanStep], rewrites: Sequence[str]) -> str:
    shown = [kernel_label(s.schedule, s.operators) if s.schedule else f"{s.operators[0]}(library)" for s in steps]
    return " + ".join(shown) + (f" after {', '.join(rewrites)}" if rewrites else "")


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
