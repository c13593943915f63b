"""Fusion plans: the ways to cut known and unseen graphs into kernels, their names, and what they write over."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from models import NAMES, graph, made, reference, source

from kgen.codegen.registry import templates
from kgen.codegen.template import Template
from kgen.compiler.fusion import kernels, programs
from kgen.compiler.fusion.fusion import MOST_PLANS, plans
from kgen.compiler.fusion.steps import FusionPlan, Kernel, Library, kernel_name
from kgen.compiler.fusion.values import in_runs
from kgen.compiler.graph.graph import OpGraph
from kgen.compiler.loops.program import Program
from kgen.compiler.operators.op import Kind
from kgen.compiler.operators.table import OPS

#: Templates of a device with contractions of its own, and of one without.
ALL = tuple(templates("cuda").values())
GPU = tuple(templates("cuda").values())
CHAINS = tuple(t for t in templates("cpu").values() if t.name not in ("contraction", "implicit_gemm"))  #: contractions are library calls


def planned(
    forward: str, init: str = "", inputs: str = "torch.randn(6, 20)", arguments: str = "x", mode: str = "eval",
    of: tuple[Template, ...] = CHAINS,
) -> tuple[FusionPlan, ...]:  # fmt: skip
    return plans(graph(made(source(forward, inputs, init, arguments), mode)), of)


def names(found: tuple[FusionPlan, ...]) -> list[str]:
    return [p.name for p in found]


LINEAR = "self.linear = nn.Linear(12, 20)"
IN = "torch.randn(6, 12)"

#: forward, __init__, inputs, arguments, mode.
CASES = {
    "maps": ("return torch.tanh(x) * 2.0 + 1.0", "", "torch.randn(6, 20)", "x", "eval"),
    "two reductions": ("y = x.softmax(dim=1)\nreturn y.sum(dim=1), y", "", "torch.randn(6, 20)", "x", "eval"),
    "library in the middle": ("v, i = torch.sort(x.relu())\nreturn v.softmax(dim=1), i", "", "torch.randn(6, 20)", "x", "eval"),
    "transposed in the middle": ("y = x.tanh().t().relu()\nreturn y.t().softmax(dim=1)", "", "torch.randn(6, 20)", "x", "eval"),
    "images": ("return self.norm(self.conv(x)).relu()", "self.conv = nn.Conv2d(3, 4, 3)\nself.norm = nn.BatchNorm2d(4)", "torch.randn(2, 3, 6, 6)", "x", "eval"),
    "images in train mode": ("return self.norm(self.conv(x).relu()).relu()", "self.conv = nn.Conv2d(3, 4, 3)\nself.norm = nn.BatchNorm2d(4)", "torch.randn(2, 3, 6, 6)", "x", "train"),
    "batch norm twice": ("return self.a(self.b(x).relu())", "self.a = nn.BatchNorm1d(20)\nself.b = nn.BatchNorm1d(20)", "torch.randn(6, 20)", "x", "train"),
    "batch norm whose input is returned": ("h = self.linear(x) * 2.0\nreturn self.norm(h), h", f"{LINEAR}\nself.norm = nn.BatchNorm1d(20)", IN, "x", "train"),
    "residual": ("return self.linear(x).relu() + y", LINEAR, f"{IN}, torch.randn(6, 20)", "x, y", "eval"),
    "a long chain": ("for _ in range(4):\n    x = (x * 1.5).tanh().relu() + 0.5\nreturn x.softmax(dim=1)", "", "torch.randn(6, 20)", "x", "eval"),
    "two chains side by side": ("return x.tanh().softmax(dim=1), (y + 1.0).sum(dim=1)", "", "torch.randn(6, 20), torch.randn(6, 8)", "x, y", "eval"),
    "empty batch": ("return self.norm(x).relu()", "self.norm = nn.BatchNorm1d(20, track_running_stats=False)", "torch.randn(0, 20)", "x", "eval"),
    "counted calls": ("self.calls.add_(1)\nreturn x * self.calls", "self.register_buffer('calls', torch.zeros(()))", "torch.randn(6, 20)", "x", "eval"),
}  # fmt: skip


@pytest.fixture(scope="module", params=[(c, f) for c in CASES for f in ("chains", "all")], ids="-".join)
def chain(request: pytest.FixtureRequest) -> tuple[FusionPlan, ...]:
    name, of = request.param
    return planned(*CASES[name], ALL if of == "all" else CHAINS)


@pytest.fixture(scope="module", params=[(n, m) for n in NAMES for m in ("train", "eval")], ids="-".join)
def known(request: pytest.FixtureRequest) -> tuple[FusionPlan, ...]:
    return plans(graph(reference(*request.param)), CHAINS)


@pytest.fixture(scope="module", params=[(n, m) for n in NAMES for m in ("train", "eval")], ids="-".join)
def with_contractions(request: pytest.FixtureRequest) -> tuple[FusionPlan, ...]:
    return plans(graph(reference(*request.param)), ALL)


# What holds for every plan


def assert_runs_in_order(plan: FusionPlan) -> None:
    """Each step reads what is there before it, nothing that was written over is needed, and all outputs are made."""
    there = {v.name for v in (*plan.graph.inputs, *plan.graph.weights, *plan.graph.folded)}
    gone: set[str] = set()
    for step in plan.steps:
        if isinstance(step, Library):
            needs, makes = set(plan.graph.node(step.node).values), {step.node}
        else:
            program = plan.program(step)
            needs, makes = set(program.tensors), set(step.outputs)
            needs |= {program.contraction.x, program.contraction.weight} if program.contraction else set()
            extra = [plan.graph.node(n) for n in step.nodes if OPS[plan.graph.node(n).op].kind is Kind.MOMENTS]
            needs |= {v for n in extra for v in n.inputs[1:]}
        assert needs <= there, (plan.name, step)
        assert not needs & gone, (plan.name, step)
        there |= makes
        if isinstance(step, Kernel) and step.overwrites:
            gone.add(step.overwrites)
    assert set(plan.graph.returns) <= there - gone


def test_steps_of_unseen_chains_run_in_order(chain: tuple[FusionPlan, ...]) -> None:
    for plan in chain:
        assert_runs_in_order(plan)


def test_steps_of_known_chains_run_in_order(known: tuple[FusionPlan, ...]) -> None:
    for plan in known:
        assert_runs_in_order(plan)


def test_steps_with_contractions_run_in_order(with_contractions: tuple[FusionPlan, ...]) -> None:
    for plan in with_contractions:
        assert_runs_in_order(plan)


def test_every_node_is_in_some_step(chain: tuple[FusionPlan, ...]) -> None:
    for plan in chain:
        steps = {n for s in plan.steps for n in ([s.node] if isinstance(s, Library) else s.nodes)}
        assert steps == {n.name for n in plan.graph.nodes}


def test_maps_of_one_value_stand_side_by_side() -> None:
    forward = (
        "q, k = F.linear(x, self.w), F.linear(x, self.v)\n"
        "q, k = (y * self.c + torch.cat((-y[:, 4:], y[:, :4]), -1) * self.s for y in (q, k))\n"
        "return q @ k.mT"
    )
    init = "self.w, self.v, self.c, self.s = (nn.Parameter(torch.randn(*n)) for n in ((8, 12), (8, 12), (8,), (8,)))"
    of = graph(made(source(forward, IN, init)))
    free = frozenset(n.name for n in of.nodes if n.op in ("slice", "permute"))
    found = [n.op for n in in_runs(of, free, frozenset(n.name for n in of.nodes))]
    assert found == [*["linear", "mul", "neg", "cat", "mul", "add"] * 2, "matmul"]


def test_effects_happen_once_and_in_their_order(chain: tuple[FusionPlan, ...]) -> None:
    for plan in chain:
        run = [n for s in plan.steps for n in ([s.node] if isinstance(s, Library) else s.nodes)]
        effects = [n.name for n in plan.graph.nodes if n.effect]
        assert [n for n in run if n in effects] == effects


def test_every_effect_is_stored() -> None:
    init = "self.conv, self.norm = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(32)"
    forward = "x = torch.cat([x, self.conv(x)], 1)\nreturn torch.cat([x, self.norm(x).relu()], 1)"
    for plan in planned(forward, init, "torch.randn(2, 16, 8, 8)", mode="train", of=ALL):
        stored = {output for step in plan.steps for output in step.outputs}
        assert {n.name for n in plan.graph.nodes if n.effect} <= stored, plan.name


def test_no_plan_occurs_twice(chain: tuple[FusionPlan, ...]) -> None:
    assert all(a.steps != b.steps or a.graph != b.graph for i, a in enumerate(chain) for b in chain[:i])


def test_kernels_of_a_plan_have_names_of_their_own(chain: tuple[FusionPlan, ...]) -> None:
    for plan in chain:
        kernels = [k.name for k in plan.kernels]
        assert len(set(kernels)) == len(kernels) and all(k.isidentifier() for k in kernels)


def test_last_plan_alone_is_the_control(chain: tuple[FusionPlan, ...]) -> None:
    assert [p.control for p in chain] == [False] * (len(chain) - 1) + [True]


def test_plans_are_not_too_many(known: tuple[FusionPlan, ...]) -> None:
    assert 2 <= len(known) <= MOST_PLANS


def test_plans_with_the_fewest_steps_behind_the_contraction_come_first(known: tuple[FusionPlan, ...]) -> None:
    steps = [p.name.partition(" after ")[0].split(" + ") for p in known[:-1]]
    counts = [sum(step != "linear(library)" for step in found) for found in steps]
    assert counts == sorted(counts)


# Known chains


def test_plans_of_gelu_and_softmax() -> None:
    assert names(plans(graph(reference(NAMES[0], "eval")), CHAINS)) == [
        "linear(library) + inner_reduction[gelu, softmax]",
        "linear(library) + pointwise[gelu] + inner_reduction[softmax]",
        "linear(library) + gelu(library) + softmax(library)",
    ]


@pytest.mark.parametrize(
    ("name", "mode", "plan"),
    [
        (NAMES[1], "eval", "linear(library) + inner_reduction[softmax] after batchnorm_to_affine, merge_affine, fold_batchnorm_into_linear"),
        (NAMES[1], "eval", "linear(library) + inner_reduction[affine, softmax] after batchnorm_to_affine, merge_affine"),
        (NAMES[1], "eval", "linear(library) + pointwise[affine] + inner_reduction[softmax] after batchnorm_to_affine, merge_affine"),
        (NAMES[1], "train", "linear(library) + outer_reduction[moments] + inner_reduction[normalise, mul, softmax]"),
        (NAMES[2], "train", "linear(library) + inner_reduction[mul, clamp, logsumexp, mish, mul] after merge_scalar_factors"),
        (NAMES[3], "train", "linear(library) + outer_reduction[mul, moments] + pointwise[mul, normalise]"),
        (NAMES[3], "train", "linear(library) + outer_reduction[moments] + pointwise[normalise] after pull_scale_into_linear"),
        (NAMES[3], "eval", "linear(library) after batchnorm_to_affine, merge_affine, fold_batchnorm_into_linear"),
    ],
)  # fmt: skip
def test_plan_is_among_those_of(name: str, mode: str, plan: str) -> None:
    assert plan in names(plans(graph(reference(name, mode)), CHAINS))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_one_kernel_for_each_operator_is_among_the_plans(name: str, mode: str) -> None:
    found = graph(reference(name, mode))
    known = [n for n in found.nodes if n.op in OPS and OPS[n.op].kind in (Kind.POINTWISE, Kind.REDUCTION)]
    assert any(len(p.kernels) == len(known) and all(len(k.nodes) == 1 for k in p.kernels) for p in plans(found, CHAINS))


# Contractions of our own


def test_plans_with_contractions_of_our_own() -> None:
    assert names(plans(graph(reference(NAMES[0], "eval")), ALL)) == [
        "contraction[linear, gelu] + inner_reduction[softmax]",
        "contraction[linear] + inner_reduction[gelu, softmax]",
        "linear(library) + inner_reduction[gelu, softmax]",
        "linear(library) + pointwise[gelu] + inner_reduction[softmax]",
        "linear(library) + gelu(library) + softmax(library)",
    ]


def test_plans_without_contractions_of_our_own_remain(with_contractions: tuple[FusionPlan, ...]) -> None:
    assert any(k.schedule == "contraction" for p in with_contractions for k in p.kernels)
    assert any(p.kernels and all(k.schedule != "contraction" for k in p.kernels) for p in with_contractions)


def test_contractions_of_our_own_are_not_too_many(with_contractions: tuple[FusionPlan, ...]) -> None:
    assert len(with_contractions) <= MOST_PLANS


@pytest.mark.parametrize(
    ("name", "mode", "plan"),
    [
        (NAMES[1], "eval", "contraction[linear] + inner_reduction[softmax] after batchnorm_to_affine, merge_affine, fold_batchnorm_into_linear"),
        (NAMES[1], "train", "contraction[linear] + outer_reduction[moments] + inner_reduction[normalise, mul, softmax]"),
        (NAMES[1], "train", "contraction[linear, moments] + inner_reduction[normalise, mul, softmax]"),
        (NAMES[2], "eval", "contraction[linear, mul, clamp] + inner_reduction[logsumexp, mish, mul] after merge_scalar_factors"),
        (NAMES[3], "train", "contraction[linear, mul] + outer_reduction[moments] + pointwise[normalise]"),
        (NAMES[3], "train", "contraction[linear] + outer_reduction[mul, moments] + pointwise[mul, normalise]"),
        (NAMES[3], "train", "contraction[linear, mul, moments] + pointwise[normalise]"),
        (NAMES[3], "train", "contraction[linear, moments] + pointwise[normalise] after pull_scale_into_linear"),
        (NAMES[3], "eval", "contraction[linear] after batchnorm_to_affine, merge_affine, fold_batchnorm_into_linear"),
    ],
)  # fmt: skip
def test_plan_with_contractions_is_among_those_of(name: str, mode: str, plan: str) -> None:
    assert plan in names(plans(graph(reference(name, mode)), ALL))


WEIGHTS = """
self.w, self.b = nn.Parameter(torch.randn(12, 20)), nn.Parameter(torch.randn(20))
self.u, self.v = nn.Parameter(torch.randn(1, 12, 20)), nn.Parameter(torch.randn(12))
"""


@pytest.mark.parametrize(
    ("forward", "plan"),
    [
        ("return torch.matmul(x, self.w).relu()", "contraction[matmul, relu]"),
        ("return torch.mm(x, self.w) + self.b", "contraction[mm, add]"),
        ("return torch.triu(x @ self.w)", "contraction[matmul, where]"),
        ("return torch.addmm(self.b, x, self.w).sum(dim=1)", "contraction[addmm] + inner_reduction[sum]"),
        ("return (x @ self.w).relu().softmax(dim=1) @ self.w.t()", "contraction[matmul, relu] + inner_reduction[softmax] + contraction[linear]"),
    ],
)  # fmt: skip
def test_contractions_with_columns_of_a_weight_are_of_our_own(forward: str, plan: str) -> None:
    assert names(planned(forward, WEIGHTS, IN, of=ALL))[0] == plan


@pytest.mark.parametrize(
    "forward",
    [
        "return torch.matmul(x, self.v).relu()",
        "return torch.matmul(x.unsqueeze(1), self.u).relu()",
        "return torch.addmm(self.b, x, self.w, beta=2).relu()",
        "return torch.matmul(x[0], self.w).relu()",
        "return torch.matmul(x, x.t()).relu()",
    ],
)
def test_other_contractions_stay_with_the_library(forward: str) -> None:
    found = planned(forward, WEIGHTS, IN, of=ALL)
    assert found and all(k.schedule != "contraction" for p in found for k in p.kernels)


def test_products_whose_columns_follow_the_first_size_are_for_that_size() -> None:
    found = planned("return torch.matmul(self.w.t(), x.t()).relu()", WEIGHTS, IN, of=ALL)
    assert names(found)[0] == "contraction[linear, relu]"
    assert found[0].graph.batch is None


@pytest.mark.parametrize(
    ("forward", "init", "plan"),
    [
        ("return self.n(self.l(x)).relu()", "GroupNorm(4, 64)", "contraction[linear, mean, variance, inverse_deviation, normalise, affine, relu]"),
        ("return self.n(self.l(x)).amin(1)", "GroupNorm(4, 64)",
         "contraction[linear, mean, variance, inverse_deviation, normalise, affine, amin] + inner_reduction[amin]"),
        ("return self.l(x).view(-1, 4, 16).sum(2)", "Identity()", "contraction[linear, sum]"),
        ("return self.n(self.l(x))", "GroupNorm(1, 64 * 3)", "contraction[linear] + inner_reduction[mean, variance, inverse_deviation, normalise, affine]"),
    ],
)  # fmt: skip
def test_spans_of_columns_are_reduced_in_the_epilogue_where_a_tile_holds_them(forward: str, init: str, plan: str) -> None:
    cols = 192 if "3" in init else 64
    found = planned(forward, f"self.l, self.n = nn.Linear(12, {cols}), nn.{init}", IN, of=ALL)
    assert names(found)[0] == plan


def test_a_sum_whose_last_size_is_the_batch_is_a_kernel() -> None:
    found = planned("return x + self.b", "self.b = nn.Parameter(torch.randn(1, 30, 1, 1))", "torch.randn(6, 1)", of=ALL)
    assert names(found)[0] == "pointwise[add]" and found[0].graph.batch == 6


def test_contractions_after_one_another_are_all_of_our_own() -> None:
    init = "self.a = nn.Linear(12, 20)\nself.c = nn.Linear(20, 8)"
    found = planned("return self.c(self.a(x).relu()).softmax(dim=1)", init, IN, of=ALL)
    assert names(found)[0] == "contraction[linear, relu] + contraction[linear, softmax]"


def test_contraction_that_is_needed_again_is_stored_beside_its_maps() -> None:
    found = planned("h = self.linear(x)\nreturn h.relu(), h", LINEAR, IN, of=ALL)
    assert found[0].kernels[0].outputs == ("linear", "relu")


def test_contraction_stores_what_its_moments_are_of() -> None:
    init = f"{LINEAR}\nself.norm = nn.BatchNorm1d(20)"
    found = planned("return self.norm(self.linear(x) * 2.0)", init, IN, mode="train", of=ALL)
    (plan,) = [p for p in found if p.name == "contraction[linear, mul, moments] + pointwise[normalise]"]
    assert [k.outputs for k in plan.kernels] == [("mul", "batch_norm_moments"), ("batch_norm",)]


def test_contraction_that_only_moments_are_taken_of_is_stored_all_the_same() -> None:
    init = f"{LINEAR}\nself.norm = nn.BatchNorm1d(20)"
    found = planned("self.norm(self.linear(x))\nreturn x * 2.0", init, IN, mode="train", of=ALL)
    assert all(p.program(k).stores for p in found for k in p.kernels if k.schedule == "contraction")


def test_contraction_takes_all_maps_of_a_long_chain_or_none() -> None:
    forward = "y = self.linear(x)\nfor _ in range(4):\n    y = (y * 1.5).tanh().relu() + 0.5\nreturn y.softmax(dim=1)"
    found = planned(forward, LINEAR, IN, of=ALL)
    assert {len(k.nodes) for p in found for k in p.kernels if k.schedule == "contraction"} == {1, 17}


def test_contraction_of_a_flattened_batch_is_of_our_own() -> None:
    (first, *_) = planned("return self.linear(x).relu()", LINEAR, "torch.randn(6, 5, 12)", of=ALL)
    program = first.program(first.kernels[0])
    assert first.name == "contraction[linear, relu]" and (program.rows, program.cols, program.contraction.k) == (30, 20, 12)


def test_bytes_of_a_contraction_are_its_operands_and_its_result() -> None:
    found = planned("return self.linear(x)", LINEAR, IN, of=ALL)
    assert found[0].bytes_moved(found[0].kernels[0]) == 4 * (6 * 12 + 12 * 20 + 20 + 6 * 20)


def test_no_kernel_reduces_and_scatters() -> None:
    loaded = made(source("return torch.zeros(6, dtype=x.dtype).index_add(0, self.at, x.sum(1))", "torch.randn(9, 64)", "self.register_buffer('at', torch.arange(9) % 6)"))
    assert names(plans(graph(loaded), tuple(templates("cuda").values())))[0] == "inner_reduction[sum] + scattering[index_add]"


# Unseen chains


def test_library_call_in_the_middle_leaves_the_rest_fused() -> None:
    found = planned("v = torch.sort(x.relu() * 2.0)[0]\nreturn (v + 1.0).softmax(dim=1)")
    assert names(found)[0] == "pointwise[relu, mul] + sort(library) + inner_reduction[add, softmax]"


def test_known_operator_that_makes_no_kernel_leaves_the_rest_fused() -> None:
    found = planned("y = (x * 2.0).tanh().t().relu()\nreturn (y.t() + 1.0).softmax(dim=1)")
    assert names(found)[0] == "pointwise[mul, tanh] + relu(library) + inner_reduction[add, softmax]"


def test_batch_norm_over_another_dimension_leaves_the_rest_fused() -> None:
    init = "self.norm = nn.BatchNorm1d(6, affine=False, track_running_stats=False)"
    assert "inner_reduction[" in names(planned("return self.norm(x.t()).t().softmax(dim=1)", init))[0]


def test_long_chain_is_one_kernel_first() -> None:
    found = planned("for _ in range(4):\n    x = (x * 1.5).tanh().relu() + 0.5\nreturn x.softmax(dim=1)")
    assert len(found[0].kernels) == 1


def test_value_that_two_kernels_need_is_computed_again_after_statistics() -> None:
    init = "self.s = nn.Parameter(torch.randn(20))\nself.norm = nn.BatchNorm1d(20)"
    found = planned("return self.norm(x * self.s)", init, mode="train")
    (plan,) = [p for p in found if p.name == "outer_reduction[mul, moments] + pointwise[mul, normalise]"]
    assert [k.outputs for k in plan.kernels] == [("batch_norm_moments",), ("batch_norm",)]


def test_value_that_is_returned_is_stored_even_where_statistics_use_it() -> None:
    init = f"{LINEAR}\nself.norm = nn.BatchNorm1d(20)"
    found = planned("h = self.linear(x) * 2.0\nreturn self.norm(h), h", init, IN, mode="train")
    assert any("moments" in n for n in names(found)) and not any("outer_reduction[mul" in n for n in names(found))


def test_views_are_left_out_of_the_name() -> None:
    assert names(planned("return x.view(-1).relu()"))[0] == "pointwise[relu]"


@pytest.mark.parametrize("operator", ["abs", "cos", "erf", "exp", "expm1", "log", "log1p", "sin", "sqrt", "tanh"])
def test_kernel_is_not_called_like_a_function_of_c(operator: str) -> None:
    assert planned(f"return torch.{operator}(x)")[0].kernels[0].name == f"{operator}_kernel"


def test_product_of_small_matrices_meets_a_chain_behind_it() -> None:
    forward = "d = (y[:, :, None] - y[:, None]).masked_fill(self.mask, 0.0).exp()\nreturn torch.bmm(x, x.mT) * d"
    mask = "self.register_buffer('mask', torch.ones(12, 12).triu(1).bool())"
    found = planned(forward, mask, "torch.randn(64, 12, 20), torch.rand(64, 12)", "x, y", of=GPU)
    assert "small_product[sub, masked_fill, exp, bmm, mul]" in names(found)


# Writing over


def overwritten(found: tuple[FusionPlan, ...]) -> list[str | None]:
    return [k.overwrites for k in found[0].kernels]


def test_result_of_the_contraction_is_written_over() -> None:
    assert overwritten(planned("return self.linear(x).relu()", LINEAR, IN)) == ["linear"]


def test_input_is_not_written_over() -> None:
    assert overwritten(planned("return x.relu()")) == [None]


def test_weight_is_not_written_over() -> None:
    assert "w" not in overwritten(planned("return self.w.relu() * 2.0 + x.sum()", "self.w = nn.Parameter(torch.randn(20))"))


ADDED = "y, z = x * 2, x.exp()\nreturn y.index_add(0, self.at, z)"
AT = "self.register_buffer('at', torch.arange(6) // 2)"


def test_values_are_taken_into_what_the_result_begins_as() -> None:
    assert "mul" in overwritten(planned(ADDED, AT, of=GPU))


@pytest.mark.parametrize("forward", [f"{ADDED}, y", f"{ADDED} * y", "return x.index_add(0, self.at, x.exp())"])
def test_values_are_not_taken_into_what_something_else_needs(forward: str) -> None:
    assert not {"mul", "x"} & {*overwritten(planned(forward, AT, of=GPU))}


def test_contraction_that_is_returned_is_not_written_over() -> None:
    assert overwritten(planned("y = self.linear(x)\nreturn y.relu(), y", LINEAR, IN)) == [None]


def test_contraction_of_which_a_view_is_returned_is_not_written_over() -> None:
    assert overwritten(planned("y = self.linear(x)\nreturn y.relu(), y.view(-1)", LINEAR, IN)) == [None]


def test_contraction_of_which_a_view_is_read_later_is_not_written_over() -> None:
    found = planned("y = self.linear(x)\nz = y.relu()\nreturn torch.cumsum(z, 1) + y[:, :1]", LINEAR, IN)
    assert found[0].kernels[0].overwrites is None


def test_contraction_of_which_a_view_is_read_in_the_same_kernel_is_not_written_over() -> None:
    found = planned("y = self.linear(x)\nreturn y.relu() + y[:, :1]", LINEAR, IN)
    assert found[0].kernels[0].overwrites is None


def test_view_is_not_written_over() -> None:
    assert overwritten(planned("return x[:, :8].relu()")) == [None]


def test_contraction_that_a_later_pass_reads_again_is_not_written_over() -> None:
    found = planned("y = self.linear(x)\nreturn y.tanh(), (y * 2.0).logsumexp(dim=1)", LINEAR, IN)
    assert overwritten(found) == [None]


def test_reduced_contraction_is_not_written_over() -> None:
    assert overwritten(planned("return self.linear(x).relu().sum(dim=1)", LINEAR, IN)) == [None]


def test_broadcast_operand_is_not_written_over() -> None:
    found = planned("y = self.linear(x)\nreturn z + y", LINEAR, f"{IN}, torch.randn(4, 6, 20)", "x, z")
    assert overwritten(found) == [None]


def test_earlier_kernels_result_is_written_over() -> None:
    found = planned("return x.exp().softmax(dim=1)")
    (plan,) = [p for p in found if p.name == "pointwise[exp] + inner_reduction[softmax]"]
    assert [k.overwrites for k in plan.kernels] == [None, "exp"]


def test_parts_of_a_concatenation_that_take_many_maps_are_kernels_of_their_own() -> None:
    def whole(maps: int) -> bool:
        parts = (f"(x[:, {3 * n}:{3 * n + 3}] * {n + 2.5}){'.exp()' * maps}" for n in range(5))
        found = names(planned(f"return torch.cat([{', '.join(parts)}], 1)", inputs="torch.randn(6, 21)"))
        return any(name.startswith("pointwise") and " + " not in name for name in found)

    assert whole(2) and not whole(9)


# Cheap maps


@pytest.mark.parametrize(
    ("forward", "inputs", "plan"),
    [
        ("return (x.float() - z.float()).exp().mean()", "torch.randn(6, 20).bfloat16(), torch.randn(6, 20).bfloat16()",
         "inner_reduction[cast, cast, sub, exp, mean]"),
        ("return (x.abs() - z.neg()).exp()", "torch.randn(6, 20), torch.randn(6, 20)", "pointwise[abs, neg, sub, exp]"),
        ("y = x.exp().float()\nreturn y / y.sum(1, keepdim=True) + z", "torch.randn(6, 20).bfloat16(), torch.randn(6, 20)",
         "pointwise[exp] + inner_reduction[cast, sum, div, add]"),
    ],
)  # fmt: skip
def test_cheap_maps_of_stored_values_are_taken_into_the_kernels_that_read_them(forward: str, inputs: str, plan: str) -> None:
    found = names(planned(forward, inputs=inputs, arguments="x, z"))
    assert plan in found
    assert not [name for name in found if any(f"pointwise[{op}]" in name for op in ("cast", "abs", "neg"))]


def test_two_kernels_that_read_a_cast_read_what_it_is_of() -> None:
    found = planned("y = x.float()\nreturn y.sum(1), y.exp().sum(0)", inputs="torch.randn(6, 20).bfloat16()")
    plan = next(p for p in found if p.name.count("[cast") == 2)
    assert [plan.program(kernel).tensors for kernel in plan.kernels] == [("x",), ("x",)]
    assert not [step for step in plan.steps if isinstance(step, Library)]


def test_cast_that_is_returned_or_read_by_a_library_call_is_stored() -> None:
    for forward in ("y = x.float()\nreturn y, y.exp()", "y = x.float()\nreturn torch.linalg.inv(y), y.exp()"):
        found = planned(forward, inputs="torch.randn(6, 6).bfloat16()")
        assert any("pointwise[cast" in name for name in names(found)), names(found)


# Bytes


def test_bytes_of_a_fused_tail_are_one_read_and_one_write() -> None:
    found = plans(graph(reference(NAMES[0], "eval")), CHAINS)
    assert found[0].bytes_moved(found[0].kernels[0]) == 2 * 4 * 6 * 20


def test_pools_behind_convolutions_are_the_convolutions_or_windows() -> None:
    conv = "return F.max_pool2d(self.conv(x).relu(), 2)", "self.conv = nn.Conv2d(3, 8, 3)", "torch.randn(2, 3, 8, 8)"
    assert names(planned(*conv, of=ALL))[:2] == ["implicit_gemm[conv2d, relu, max_pool2d]", "implicit_gemm[conv2d, relu] + window[max_pool2d]"]
    assert not [name for name in names(planned(*conv, of=tuple(templates("cpu").values()))) if "conv2d, relu, max_pool2d" in name]


@pytest.mark.parametrize(("suffix", "compiler"), [("cpp", ["g++", "-fsyntax-only"]), ("cu", ["nvcc", "-cubin", "-std=c++17", "-o", "/dev/null"])])
def test_no_kernel_has_the_name_of_a_function_of_the_c_library_or_of_cuda(suffix: str, compiler: list[str], tmp_path: Path) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"needs {compiler[0]}")
    names = [kernel_name([label], set()) for label in {op.label or op.name for op in OPS.values()} | {*OPS}]
    declared = "".join(f'extern "C" int {name}(const float* in, float* out, const long long rows);\n' for name in names)
    headers = ["cmath", "cstdlib", "cstring", "cstdio", "ctime", "unistd.h", "strings.h", *(["cuda_fp16.h", "cuda_bf16.h"] if suffix == "cu" else [])]
    path = tmp_path / f"names.{suffix}"
    path.write_text("".join(f"#include <{name}>\n" for name in headers) + declared)
    done = subprocess.run([*compiler, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_kernels_of_many_nodes_are_lowered_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that grew by one node at a time would lower twice as many, and three times in a loop that is twice as long."""
    lowered: list[int] = []
    own = programs.lower

    def counted(graph: OpGraph, nodes: Sequence[str], outputs: Sequence[str], *, two_passes: bool = False) -> Program:
        lowered.append(len(nodes))
        return own(graph, nodes, outputs, two_passes=two_passes)

    monkeypatch.setattr(programs, "lower", counted)
    forward = """
        h, ys = torch.zeros(4, 20, 17), []
        for i in range(6):
            h = h * torch.exp(x[:, i, :, None] * -self.a.exp()) + x[:, i, :, None]
            ys.append((h * x[:, i, :17, None].mT).sum(2))
        return torch.stack(ys, 1)"""
    found = planned(textwrap.dedent(forward), "self.a = nn.Parameter(torch.randn(20, 17))", "torch.randn(4, 6, 20)")
    assert max(len(step.nodes) for p in found for step in p.steps if isinstance(step, Kernel)) == 96
    assert sum(lowered) < 8000


@pytest.mark.parametrize(("device_type", "kernels"), [("cpu", 1), ("cuda", 0)])
def test_sums_in_any_order_are_not_proposed_under_deterministic_algorithms(device_type: str, kernels: int) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        found = graph(made(source("return self.z.index_add(0, at, x)", "torch.randn(9, 4), torch.zeros(9, dtype=torch.int64)", "self.register_buffer('z', torch.zeros(3, 4))", "x, at")))
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(plans(found, tuple(templates(device_type).values()))[0].kernels) == kernels


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_value_that_no_kernel_stores_or_computes_again_is_a_kernel_of_its_own(device_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in two layers of a language model: the rest of the kernel that was cut goes on with the next one."""
    monkeypatch.setattr(kernels, "MANY_NODES", 1)
    norm = "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)"
    found = graph(made(source(
        f"x = self.table(ids)\nx = x + self.first({norm})\nx = x + self.second({norm})\nreturn {norm}",
        "torch.randint(0, 100, (2, 16))",
        "self.table = nn.Embedding(100, 64)\nself.first = nn.Linear(64, 64, bias=False)\nself.second = nn.Linear(64, 64, bias=False)",
        "ids",
    )))  # fmt: skip
    cut = [p for p in plans(found, tuple(templates(device_type).values())) if "pointwise[embedding] + inner_reduction[square, mean, add, rsqrt, mul] + contraction[linear" in p.name]
    assert any(not [s for s in p.steps if isinstance(s, Library) and s.node == "embedding"] for p in cut)


# Networks

NORM_BEHIND_SUM = "y = self.linear(x) + x\nreturn y, y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * self.w"


def test_a_contraction_leaves_its_last_maps_to_a_kernel_that_two_then_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MANY_NODES", 1)
    init = "self.linear, self.w = nn.Linear(20, 20), nn.Parameter(torch.ones(20))"
    found = planned(NORM_BEHIND_SUM, init, of=tuple(templates("cpu").values()))
    assert "contraction[linear, add] + inner_reduction[square, mean, add, rsqrt, mul, mul]" in names(found)


def test_layers_whose_channels_grow_have_one_form() -> None:
    forward = "a = torch.cat((x[:, :5], x * 2.0, x * 3.0), 1).relu()\nreturn torch.cat((a, x * 4.0, x * 5.0, x * 6.0, x * 7.0), 1).relu(), a"
    found = graph(made(source(forward)))
    layers = [(n.values[0], n.name) for n in found.nodes if n.op == "relu"]
    assert len({found.form(layer, layer[1:]) for layer in layers}) == 1
    assert len({found.structure(layer, layer[1:]) for layer in layers}) == 2


def test_copy_in_front_of_a_norm_is_a_kernel_of_its_own() -> None:
    init = "self.c, self.n = nn.Conv2d(16, 16, 3, groups=16), nn.LayerNorm(16)"
    found = planned("return self.n(self.c(x).permute(0, 2, 3, 1))", init, "torch.randn(2, 16, 8, 8)", of=ALL)
    in_order = [p.name for p in found if "images_in_order" in p.name]
    assert "window[depthwise_conv2d] + transpose[copy] + inner_reduction[layer_norm] after images_in_order" in in_order
    assert all("transpose[copy]" in name for name in in_order)
