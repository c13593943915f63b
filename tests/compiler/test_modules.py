"""Modules of the kinds that people write: kernels compute them, and what they compute is right in float64, without a compiler."""

from __future__ import annotations

import inspect
from functools import cache

import pytest
import torch
import torch.utils._pytree as pytree
from evaluated import run
from kinds_of_modules import MODULES
from models import graph, made, source

from kgen.codegen.registry import templates
from kgen.compiler.fusion.fusion import plans
from kgen.compiler.fusion.steps import FusionPlan, Library
from kgen.compiler.fusion.values import made_on_the_way
from kgen.compiler.operators.facts import is_unnamed, is_view
from kgen.problems.problem import LoadedProblem


@cache
def problem(name: str) -> LoadedProblem:
    forward, inputs, init = MODULES[name]
    return made(source(forward, inputs, init, ", ".join("xyz"[: inputs.count("torch.r")])))


@cache
def best(name: str, device_type: str) -> FusionPlan:
    return plans(graph(problem(name)), tuple(templates(device_type).values()))[0]


def left(plan: FusionPlan) -> set[str]:
    """The operators that the library computes, but for views and what nothing stores."""
    nodes = [plan.graph.node(step.node) for step in plan.steps if isinstance(step, Library)]
    return {n.op for n in nodes if not (is_unnamed(n) or is_view(n) or n.name in made_on_the_way(plan.graph))}


@pytest.mark.parametrize("device_type", ["cuda", "cpu"])
@pytest.mark.parametrize("name", MODULES)
def test_kernels_compute_the_module(name: str, device_type: str) -> None:
    assert not left(best(name, device_type))


@pytest.mark.parametrize("name", MODULES)
def test_what_kernels_compute_is_right(name: str) -> None:
    loaded = problem(name)
    torch.manual_seed(0)
    module, inputs = loaded.model().eval(), loaded.inputs()
    exact = [v.double() if v.is_floating_point() else v for v in inputs]
    with torch.no_grad():
        expected = pytree.tree_leaves(module.double()(*exact))
        found = run(best(name, "cuda"), module, dict(zip(inspect.signature(module.forward).parameters, exact)))
    for got, truth in zip(found, expected, strict=True):
        torch.testing.assert_close(got.to(truth.dtype), truth, rtol=1e-6, atol=1e-6, equal_nan=True)
