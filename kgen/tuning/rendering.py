"""Rendering on paper: the text of a candidate of any plan, for a device that need not be there. Nothing is measured.

problem -> graph -> plans, in the order in which a sweep tries them -> one candidate
"""

from __future__ import annotations

from dataclasses import dataclass

from kgen.candidate import LAUNCHING, Candidate, Params, ParamValue
from kgen.compiler.fusion.steps import Kernel
from kgen.compiler.loops.program import Program
from kgen.devices.hardware import Hardware
from kgen.devices.kinds import KINDS
from kgen.errors import NotFoundError
from kgen.evaluator.runtime.process import Server
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy
from kgen.tuning import precision
from kgen.tuning.capturing import capture_apart
from kgen.tuning.design import Design
from kgen.tuning.plan import hardware_of
from kgen.tuning.search.points import Point


@dataclass(frozen=True)
class Lowered:
    """One kernel of a plan: its mode, its label as plans have it, and its loop program."""

    mode: str
    kernel: Kernel
    label: str
    program: Program


@dataclass(frozen=True)
class Rendering:
    """Everything that can be rendered for a problem on an architecture."""

    design: Design
    hardware: Hardware

    @property
    def plans(self) -> list[str]:
        """The names of the plans, in the order in which a sweep tries them."""
        return [option.name for option in self.design.options]

    def candidate(self, plan: int, params: Params) -> Candidate:
        """The candidate of a plan, numbered from 1. Parameters that are not named have their plainest values.

        Raises :class:`NotFoundError` where there is no such plan, or no such combination.
        """
        self._check(plan)
        return self.design.candidate(self._point(plan - 1, params))

    def kernels(self, plan: int) -> list[Lowered]:
        """The loop programs of a plan's kernels, in order. Raises :class:`NotFoundError`."""
        self._check(plan)
        return [
            Lowered(mode, kernel, kernel.label(of.graph), of.program(kernel))
            for mode, of in self.design.choices[plan - 1].plans
            for kernel in of.kernels
        ]

    def _check(self, plan: int) -> None:
        if not 1 <= plan <= len(self.plans):
            raise NotFoundError(
                f"--plan {plan}: there are {len(self.plans)} plans, counted from 1; see `kgen render --plans`"
            )

    def _point(self, number: int, params: Params) -> Point:
        """The first point of a plan in which all of ``params`` have their values."""
        choice, option = self.design.choices[number], self.design.options[number]
        taken: set[str] = set()
        chosen = []
        for prefix, kernel in zip(choice.prefixes, option.kernels):
            wanted = {name: value for name, value in params.items() if name.startswith(prefix)}
            taken |= set(wanted)
            index = next((i for i, of in enumerate(kernel) if _has(of, wanted, prefix)), None)
            if index is None:
                raise NotFoundError(f"--params: {kernel.name} has no combination with {_text(wanted)}")
            chosen.append(index)
        if unknown := sorted(set(params) - taken - {LAUNCHING}):
            raise NotFoundError(
                f"--params {unknown[0]}: the plan has no such kernel; it has {len(option.kernels)}, from k0 on"
            )
        point = Point(number, tuple(chosen), str(params.get(LAUNCHING, "")))
        if point.launching and (why := self.design.obstacle(point)):
            raise NotFoundError(f"--params {LAUNCHING}={point.launching}: {why}")
        return point


def rendering(problem: Problem, arch: str | None = None, server: Server | None = None) -> Rendering:
    """All that can be rendered for a problem on an architecture (``sm_90``, ``cpu``), by default that of this machine's
    GPU.

    PyTorch is taken with its default flags, as :func:`kgen.tuning.plan.plan` takes it. Raises what that function
    raises.
    """
    hardware = hardware_of(arch)
    settled, capture = capture_apart(problem, hardware.device_type, server)
    on_gpu = KINDS[hardware.device_type].accelerator
    capture = precision.guessed(capture) if on_gpu else capture
    return Rendering(Design(settled, capture, hardware, Accuracy.PYTORCH if on_gpu else Accuracy.FP32), hardware)


def _has(params: Params, wanted: Params, prefix: str) -> bool:
    return all(params.get(name.removeprefix(prefix)) == value for name, value in wanted.items())


def _text(params: dict[str, ParamValue]) -> str:
    return ", ".join(f"{name}={value}" for name, value in params.items())
