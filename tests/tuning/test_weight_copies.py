"""Without copies of weights, every candidate reads weights where they are; an optional part of what a sweep tries."""

from __future__ import annotations

import pytest
from models import made, source

from kgen.compiler.graph.graph import OpGraph
from kgen.devices.hardware import cpu, for_arch
from kgen.tuning.design import Design, captured, without_weight_copies
from kgen.tuning.plan import plan
from kgen.tuning.search import Point

LINEAR = source("return torch.relu(self.norm(self.f(x)))", "torch.randn(64, 256)", "self.f, self.norm = nn.Linear(256, 256), nn.BatchNorm1d(256)")


@pytest.fixture(scope="module")
def designs() -> dict[str, Design]:
    loaded = made(LINEAR, "eval")
    found = captured(loaded)
    return {arch: Design(loaded.problem, found, cpu() if arch == "cpu" else for_arch(arch)) for arch in ("cpu", "sm_90a")}


def graphs(design: Design) -> list[OpGraph]:
    return [of.graph for choice in design.choices for _, of in choice.plans]


def prepares(design: Design, number: int) -> bool:
    """Whether the header of an option's first candidate tells of prepared memory."""
    return "that are prepared from its weights" in design.candidate(Point(number, design.options[number].plainest)).source


@pytest.mark.parametrize("arch", ["cpu", "sm_90a"])
def test_no_candidate_keeps_a_copy_of_a_weight(designs: dict[str, Design], arch: str) -> None:
    design, without = designs[arch], without_weight_copies(designs[arch])
    assert any(prepares(design, number) for number in range(len(design.options)))
    assert not any(prepares(without, number) for number in range(len(without.options)))
    assert any(not choice.plans[0][1].control for choice in without.choices)  # kernels behind the product stay
    assert all(of.type.nbytes <= 1 << 16 for graph in graphs(without) for of in graph.folded)
    assert any(graph.folded for graph in graphs(without))  # scale and shift of the norm


def test_plan_gives_copies_as_the_reason_of_a_library_call() -> None:
    problem = made(LINEAR, "eval").problem
    [mode] = plan(problem, "cpu", weight_copies=False).modes
    reasons = dict(mode.best[0].reasons)
    assert reasons["linear"] == "kernels of it would keep a copy of its weight, and --no-weight-copies leaves these out"
