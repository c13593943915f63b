"""Plans as data: what the compiler makes, how it is numbered and printed, and what JSON gives back."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest
from models import NAMES, design, reference

from kgen.candidate import Plan, PlanStep, kernel_label
from kgen.compiler.fusion.steps import Kernel
from kgen.devices.hardware import for_arch
from kgen.store import named_plans
from kgen.tuning.design import Design

LINEAR, TAIL = ("", ["linear"]), ("inner_reduction", ["gelu", "softmax"])
ONE = Plan.of_mode([LINEAR, TAIL], ["merge_affine"])
BOTH = Plan.of_modes([("train", Plan.of_mode([LINEAR, TAIL])), ("eval", ONE)])


@pytest.fixture(scope="module", params=[(name, mode) for name in NAMES for mode in ("train", "eval", "both")], ids="-".join)
def found(request: pytest.FixtureRequest) -> Design:
    name, mode = request.param
    return design(reference(name, mode), for_arch("sm_90"))


def test_kernels_of_a_plan_are_in_its_data(found: Design) -> None:
    for choice in found.choices:
        steps = [step for step in choice.data.steps if step.schedule]
        kernels = [(kernel, plan.graph) for _, plan in choice.plans for kernel in plan.kernels]
        labels = [kernel_label(step.schedule, step.operators) for step in steps]
        assert labels == [kernel.label(graph) for kernel, graph in kernels]
        assert [f"{step.kernel}." for step in steps] == list(choice.prefixes)


def test_library_calls_of_a_plan_are_in_its_data(found: Design) -> None:
    for choice in found.choices:
        ways = [list(way) for _, way in groupby(choice.data.steps, lambda step: step.mode)]
        for way, (_, plan) in zip(ways, choice.plans):
            assert sum(not step.schedule for step in way) <= sum(not isinstance(step, Kernel) for step in plan.steps)
            assert all(len(step.operators) == 1 for step in way if not step.schedule)


def test_plan_comes_back_from_json(found: Design) -> None:
    for choice in found.choices:
        assert Plan.from_json(json.loads(json.dumps(choice.data.to_json()))) == choice.data


def test_older_names_give_the_same_plan(found: Design) -> None:
    for choice in found.choices:
        assert named_plans.read(choice.name) == choice.data


def test_name_shows_steps_and_rewrites() -> None:
    assert ONE.name == "linear(library) + inner_reduction[gelu, softmax] after merge_affine"


def test_name_shows_both_modes() -> None:
    train = "linear(library) + inner_reduction[gelu, softmax]"
    assert BOTH.name == f"train: {train} / eval: {ONE.name}"


def test_kernels_are_numbered_in_each_mode() -> None:
    both = Plan.of_modes([("train", Plan.of_mode([TAIL, LINEAR, TAIL])), ("eval", Plan.of_mode([TAIL]))])
    assert [step.kernel for step in both.steps] == ["train.k0", "", "train.k1", "eval.k0"]
    assert [step.kernel for step in Plan.of_mode([LINEAR, TAIL]).steps] == ["", "k0"]


def test_plan_for_one_mode_stays_as_it_is() -> None:
    assert Plan.of_modes([("eval", ONE)]) == ONE


def test_kernel_finds_its_own_parameters() -> None:
    step = PlanStep("", "inner_reduction", ("softmax",), "k1")
    assert step.own({"k0.block": 1, "k1.block": 2, "k10.block": 3}) == {"block": 2}


def test_json_has_steps_and_rewrites() -> None:
    assert ONE.to_json() == {
        "steps": [
            {"mode": "", "schedule": "", "operators": ["linear"], "kernel": ""},
            {"mode": "", "schedule": "inner_reduction", "operators": ["gelu", "softmax"], "kernel": "k0"},
        ],
        "rewrites": {"": ["merge_affine"]},
    }


@pytest.mark.parametrize("plan", [Plan(), Plan.of_mode([]), Plan.of_mode([], ["fold"]), ONE, BOTH])
def test_json_gives_the_plan_back(plan: Plan) -> None:
    assert Plan.from_json(json.loads(json.dumps(plan.to_json(), sort_keys=True))) == plan


def step(**changes: Any) -> dict[str, Any]:
    return {"mode": "", "schedule": "inner_reduction", "operators": ["gelu"], "kernel": "k0"} | changes


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], "must be an object of steps, rewrites"),
        ({"steps": []}, "must be an object of steps, rewrites"),
        ({"steps": {}, "rewrites": {"": []}}, "which is no list"),
        ({"steps": [], "rewrites": {}}, "must be given for train and eval, or for ''"),
        ({"steps": [], "rewrites": {"train": []}}, "must be given for train and eval, or for ''"),
        ({"steps": [], "rewrites": []}, "must be given for train and eval, or for ''"),
        ({"steps": [], "rewrites": {"": "fold"}}, "must be a list of names"),
        ({"steps": [], "rewrites": {"": ["a, b"]}}, "must be a list of names"),
        ({"steps": ["gelu"], "rewrites": {"": []}}, "must be an object of mode, schedule, operators, kernel"),
        ({"steps": [step(colour="red")], "rewrites": {"": []}}, "must be an object of mode, schedule, operators, kernel"),
        ({"steps": [step(operators=["a] + b["])], "rewrites": {"": []}}, "must be a list of names"),
        ({"steps": [step(operators=[1])], "rewrites": {"": []}}, "must be a list of names"),
        ({"steps": [step(schedule=None)], "rewrites": {"": []}}, "must be a list of names"),
        ({"steps": [step(schedule="", kernel="", operators=["a", "b"])], "rewrites": {"": []}}, "has one operator"),
        ({"steps": [step(kernel="k1")], "rewrites": {"": []}}, "another mode or kernel than its place says"),
        ({"steps": [step(), step()], "rewrites": {"": []}}, "another mode or kernel than its place says"),
        ({"steps": [step(schedule="")], "rewrites": {"": []}}, "another mode or kernel than its place says"),
        ({"steps": [step(mode="train", kernel="train.k0")], "rewrites": {"": []}}, "another mode or kernel than its place says"),
        ({"steps": [step(mode=["train"])], "rewrites": {"train": [], "eval": []}}, "another mode or kernel than its place says"),
        (
            {"steps": [step(mode=m, kernel=f"{m}.k0") for m in ("eval", "train")], "rewrites": {"train": [], "eval": []}},
            "another mode or kernel than its place says",
        ),
    ],
)
def test_json_that_is_no_plan_is_refused(value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Plan.from_json(value)
    assert "\n" not in str(caught.value)


def test_line_about_a_long_value_is_short() -> None:
    with pytest.raises(ValueError) as caught:
        Plan.from_json({"steps": [["gelu"] * 10_000], "rewrites": {"": []}})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", ["file.py", "a plan", "row[1].py", "linear(library) + rest", "pointwise[]", "pointwise[a b]"])
def test_text_that_is_no_name_is_no_plan(name: str) -> None:
    assert named_plans.read(name) == Plan()
