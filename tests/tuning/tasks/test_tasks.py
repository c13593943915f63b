"""Tasks are the same for equal steps, and files of their variants stand alone."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

import pytest
import torch
from networks import NETWORK, RELATIVE, design
from samples import environment

from kgen.store.kernel_task import Variant
from kgen.tuning.design import Design
from kgen.tuning.network import catalogue, is_network, with_library
from kgen.tuning.search import Point
from kgen.tuning.tasks.parts import Catalogue
from kgen.tuning.tasks.task import TaskMaker
from kgen.tuning.tasks.unit import text_hash, units


@pytest.fixture(scope="module")
def found() -> Catalogue:
    return catalogue(design(), environment())


def kernels(of: Catalogue) -> list:
    return [part for part in of.options[of.best] if part.space is not None]


def test_network_has_more_kernels_than_a_small_problem() -> None:
    small = NETWORK.replace("range(11)", "range(3)").replace("self.head(x)", "x")
    assert is_network(design()) and not is_network(design(small))


def test_equal_layers_are_one_task(found: Catalogue) -> None:
    layers = [part for part in kernels(found) if "gelu" in part.operators]
    assert len(layers) == 12 and len({part.task.id for part in layers}) == 1
    assert found.uses[layers[0].task.id] == 12


def test_kernel_that_names_first_what_it_stores_first_is_the_same_task(found: Catalogue) -> None:
    of = design()
    ((_, plan),) = of.choices[found.best].plans
    maker, part = TaskMaker(of.hardware, of.accuracy, environment()), next(p for p in kernels(found) if p.operators == "linear, gelu")
    kernel = next(k for k in plan.kernels if [*k.operators(plan.graph)] == ["linear", "gelu"])
    task = maker.task(plan, replace(kernel, nodes=kernel.nodes[::-1]))
    assert task and task.id == part.task.id and units(task, [next(part.variants())], 1)[0].library


def test_layers_of_other_sizes_are_other_tasks(found: Catalogue) -> None:
    assert len({part.task.id for part in kernels(found)}) > 1


def test_relative_of_a_network_has_the_same_task_with_the_same_text(found: Catalogue) -> None:
    other = catalogue(design(RELATIVE), environment())
    shared = [part for part in kernels(found) if part.task.id in other.tasks]
    assert {part.operators for part in shared} >= {"linear, gelu"}
    for part in shared:
        variant = next(part.variants())
        assert text_hash(part.task, variant) == text_hash(other.tasks[part.task.id][0].task, variant)


def test_identity_depends_on_the_device_and_its_compiler(found: Catalogue) -> None:
    other = catalogue(design(), environment("another cpu", "cpu"))
    assert set(other.tasks) == set(found.tasks)  # the device is the hardware's, the same in both
    part = kernels(found)[0]
    assert {part.task.key.device, part.task.key.compiler} == {part.task.hardware.name, environment().compiler}


def test_library_calls_say_why_they_are_some(found: Catalogue) -> None:
    control = found.options[design().control.option]
    assert control and all(part.space is None and part.reason for part in control)


def test_file_has_a_method_for_each_variant_and_for_the_library(found: Catalogue) -> None:
    part = kernels(found)[-1]
    (unit,) = units(part.task, [v for v in part.variants() if dict(v.params)["vector_bits"] == 512][:2], 4)
    (kind,) = [node for node in ast.parse(unit.candidate.source).body if isinstance(node, ast.ClassDef) and node.name == "ModelNew"]
    methods = {node.name for node in kind.body if isinstance(node, ast.FunctionDef)}
    assert {*unit.methods, unit.library} <= methods and len(set(unit.texts)) == 2


def test_variants_with_other_compiler_flags_are_in_other_files(found: Catalogue) -> None:
    part = kernels(found)[0]
    wide, narrow = (Variant.of(part.schedule, {**part.space[0], "vector_bits": bits}) for bits in (512, 256))
    assert [unit.variants for unit in units(part.task, [wide, narrow], 4)] == [(wide,), (narrow,)]


# Kernels that are left to the library --------------------------------------------------------------------------


def test_option_that_leaves_a_kernel_to_the_library_renders(found: Catalogue) -> None:
    of = design()
    number = of.leave_to_library(found.best, {0})
    assert number is not None and of.options[number].name.startswith("linear(library) + gelu(library)")
    assert len(of.options[number].kernels) == len(of.options[found.best].kernels) - 1
    text = of.candidate(Point(number, of.options[number].plainest)).source
    assert "F.gelu(linear" in text


def test_plan_that_leaves_kernels_to_the_library_is_a_text_of_ours() -> None:
    of, best = design(), catalogue(design(), environment()).best
    number = of.leave_to_library(best, {1, 2})
    made = of.candidate(Point(number, of.options[number].plainest))
    fresh: Design = design()
    assert fresh.renders(made.plan_data, made.params, made.source)
    assert not fresh.renders(made.plan_data, made.params, made.source + "\n")


def test_regions_of_plans_are_put_together_by_the_times_of_their_steps(found: Catalogue) -> None:
    of = design()
    numbers = of.regions(found.best)
    plans = [of.choices[n].plans[0][1] for n in numbers]
    at = plans[0].kernels[3]

    def cost(plan: int, step: int, library: bool) -> float:
        """The first plan's kernels take 1 ms each, but for one that the library computes in less; no other plan is tuned."""
        if plan:
            return float("inf")
        return (0.5 if plans[0].steps[step] == at else 2.0) if library else 1.0

    number = of.put_together(numbers, cost)
    (_, plan), = of.choices[number].plans
    assert len(plan.kernels) == len(plans[0].kernels) - 1
    assert [k.nodes for k in plan.kernels] == [k.nodes for k in plans[0].kernels if k is not at]
    made = of.candidate(Point(number, of.options[number].plainest))
    assert "F.gelu(" in made.source and design().renders(made.plan_data, made.params, made.source)


def test_plan_that_is_fastest_everywhere_is_put_together_from_no_others(found: Catalogue) -> None:
    of = design()
    assert of.put_together(of.regions(found.best), lambda plan, step, library: 2.0 if library or plan else 1.0) is None


def test_equal_layers_of_a_file_are_one_function() -> None:
    of, best = design(), catalogue(design(), environment()).best
    made = of.candidate(Point(best, of.options[best].plainest))
    names = re.findall(r'^extern "C" \w+ (linear_gelu\w*)\(', made.source, re.MULTILINE)
    assert made.kernels == len(of.options[best].kernels) > 12
    assert {name.removesuffix("_pack") for name in names} == {"linear_gelu", "linear_gelu_2"}  # the first one reads `x`


def test_option_without_any_kernel_is_not_added(found: Catalogue) -> None:
    of = design()
    assert of.leave_to_library(found.best, set(range(len(of.options[found.best].kernels)))) is None


def test_catalogue_without_results_leaves_nothing_to_the_library(found: Catalogue) -> None:
    of = design()
    assert with_library(of, found, {}).options == found.options and len(of.options) == len(design().options)


def test_kernel_that_keeps_statistics_is_a_task_of_its_other_results() -> None:
    images = NETWORK.replace("self.head = ", "self.norm = nn.BatchNorm2d(2)\n        self.head = ")
    trained = design(images.replace("self.head(x)", "self.head(self.norm(x.view(-1, 2, 4, 4)).flatten(1))"), mode="train")
    parts = [part for parts in catalogue(trained, environment()).options.values() for part in parts if "moving_average" in part.operators]
    assert any(part.task and part.space is not None for part in parts)
    for part in parts:
        if part.task and part.space is not None:
            (unit,) = units(part.task, [next(part.variants())], 4)
            assert not any(part.task.graph.node(name).effect for name in part.task.graph.returns) and unit.library


def test_batch_norm_that_keeps_statistics_is_timed_in_the_library() -> None:
    with_norm = NETWORK.replace("self.head = ", "self.norm = nn.BatchNorm1d(32)\n        self.head = ").replace("self.head(x)", "self.head(self.norm(x))")
    trained = design(with_norm, mode="train")
    (norm,) = [part for part in catalogue(trained, environment()).options[trained.control.option] if part.name == "batch_norm"]
    (unit,) = units(norm.task, list(norm.variants()), 4)
    found: dict = {}
    exec(unit.candidate.source, found)  # our own text
    model, x = found["ModelNew"](), torch.randn(8, 32)
    for tensor, value in zip(model.state_dict().values(), (1.0, 0.0, 0.0, 1.0)):
        tensor.fill_(value)
    assert torch.allclose(model._run(x), torch.nn.functional.batch_norm(x, None, None, training=True), atol=1e-5)
