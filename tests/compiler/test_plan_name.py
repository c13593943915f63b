"""Names of plans: what is written is read back."""

from __future__ import annotations

from itertools import groupby

import pytest
from models import NAMES, design, reference

from kgen.compiler.fusion import plan_name
from kgen.compiler.fusion.fusion import Kernel
from kgen.devices.hardware import for_arch
from kgen.tuning.design import Design


@pytest.fixture(scope="module", params=[(name, mode) for name in NAMES for mode in ("train", "eval", "both")], ids="-".join)
def found(request: pytest.FixtureRequest) -> Design:
    name, mode = request.param
    return design(reference(name, mode), for_arch("sm_90"))


def test_kernels_of_a_plan_are_read_from_its_name(found: Design) -> None:
    for choice in found.choices:
        steps = [step for step in plan_name.read(choice.name) if step.schedule]
        kernels = [(kernel, plan.graph) for _, plan in choice.plans for kernel in plan.kernels]
        labels = [plan_name.of_kernel(step.schedule, step.operators) for step in steps]
        assert labels == [kernel.label(graph) for kernel, graph in kernels]
        assert [f"{step.kernel}." for step in steps] == list(choice.prefixes)


def test_library_calls_of_a_plan_are_read_from_its_name(found: Design) -> None:
    for choice in found.choices:
        steps = plan_name.read(choice.name)
        ways = [[step for step in way] for _, way in groupby(steps, lambda step: step.mode)]
        for way, (_, plan) in zip(ways, choice.plans):
            assert sum(not step.schedule for step in way) <= sum(not isinstance(step, Kernel) for step in plan.steps)
            assert all(len(step.operators) == 1 for step in way if not step.schedule)


def test_kernel_finds_its_own_parameters() -> None:
    (_, second) = plan_name.read("a[gelu] + b[softmax]")
    assert second.own({"k0.block": 1, "k1.block": 2, "k10.block": 3}) == {"block": 2}


def test_text_that_is_no_name_has_no_steps() -> None:
    assert plan_name.read("file.py") == ()
