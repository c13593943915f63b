"""Reductions of every shape on the CPU: their values at covering sets of their spaces, as accurate as eager's."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
from models import captured, design, made, module, source, way
from test_candidates_cpu import assert_as_accurate_as_eager, constructed, drawn, resized

from kgen.codegen.render import kernel_text, render
from kgen.codegen.template import Task
from kgen.devices.hardware import cpu
from kgen.tuning.design import Design
from kgen.tuning.search import Point

#: Cases: forward, inputs, __init__, mode.
CASES = {
    "a loss": ("return torch.mean((x - x.flip(1)) ** 2)", "torch.randn(40, 1000)", "", "eval"),
    "batch norm of images": ("return self.norm(x).relu()", "torch.randn(6, 5, 9, 21) * 3 + 100", "self.norm = nn.BatchNorm2d(5)", "train"),
    "batch norm of volumes": ("return self.norm(x)", "torch.randn(4, 3, 4, 5, 6)", "self.norm = nn.BatchNorm3d(3, affine=False)", "train"),
    "group norm": ("return self.norm(x)", "torch.randn(6, 8, 7, 9)", "self.norm = nn.GroupNorm(2, 8)", "eval"),
    "softmax over channels": ("return torch.softmax(x, 1), torch.log_softmax(x, 1)", "torch.randn(6, 12, 9, 9)", "", "eval"),
    "places over channels": ("return x.argmax(1), x.amin(1)", "torch.randn(6, 70, 33)", "", "eval"),
    "places of equal values": ("return x.round().argmin(1)", "torch.randn(6, 900)", "", "eval"),
    "columns of a batch": ("return x.sum(0), x.prod(0)", "torch.rand(300, 30) + 0.5", "", "eval"),
}  # fmt: skip

pytestmark = pytest.mark.usefixtures("quick_builds")


def assert_first_plan_is_as_accurate(forward: str, inputs: str, init: str, mode: str, schedule: str = "") -> None:
    """Compare the first plan whose name holds ``schedule`` with eager, at a covering set of its parameters.

    Which plan is predicted to be the fastest depends on the CPU.
    """
    loaded = made(source(forward, inputs, init), mode)
    found = captured(loaded)
    design = Design(loaded.problem, found, cpu())
    choice = next(c for c in design.choices if not c.plans[0][1].control and schedule in c.plans[0][1].name)
    ((_, plan),) = choice.plans
    sets = [space.covering_set() for space in choice.spaces]
    model = constructed(loaded, loaded.model_class, mode == "train")
    for number in range(min(3, max(map(len, sets)))):
        params = {f"k{k}.{name}": value for k, own in enumerate(sets) for name, value in own[number % len(own)].items()}
        file = module(render(loaded.problem, [way(mode, plan, params)], cpu(), both_modes=found.same))
        new = constructed(loaded, file.ModelNew, mode == "train")
        assert_as_accurate_as_eager(model, new, drawn(loaded))
        assert_as_accurate_as_eager(model, new, resized(drawn(loaded), 13))


@pytest.mark.parametrize("case", CASES)
def test_reductions_are_as_accurate_as_eager(case: str) -> None:
    assert_first_plan_is_as_accurate(*CASES[case])


#: Windows over images whose channels lie side by side, as a channels-last convolution leaves them.
ACROSS = {
    "a maximum": ("return F.max_pool2d(x.permute(0, 3, 1, 2), 3, 2, 1)", "torch.randn(5, 9, 38, 70)", ""),
    "a mean behind maps by channel": ("return F.avg_pool2d((x.permute(0, 3, 1, 2) * self.s).relu(), 3, 1, 1, count_include_pad=False) + 1.0", "torch.randn(5, 7, 9, 24)",
                                      "self.s = nn.Parameter(torch.rand(24, 1, 1))"),
    "a volume": ("return F.max_pool3d(x.permute(0, 4, 1, 2, 3).sigmoid(), 2)", "torch.randn(5, 4, 6, 8, 20)", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", ACROSS)
def test_windows_across_channels_are_as_accurate_as_eager(case: str) -> None:
    assert_first_plan_is_as_accurate(*ACROSS[case], "eval", "strip_window[")


@pytest.mark.parametrize(
    "sizes", [pytest.param("5, 48, 64", marks=pytest.mark.exhaustive), "5, 37, 50", pytest.param("5, 16, 19", marks=pytest.mark.exhaustive)])
def test_transposes_are_as_accurate_as_eager(sizes: str) -> None:
    """Blocks that are turned in registers, what is left of them at the borders, and maps behind them."""
    forward = "return (x.permute(0, 2, 1) * self.s).sigmoid() + x.permute(0, 2, 1)[:, :, :1]"
    assert_first_plan_is_as_accurate(forward, f"torch.randn({sizes})", "self.s = nn.Parameter(torch.rand(1))", "eval", "transpose[")


def test_maximum_across_channels_with_nan_is_nan() -> None:
    loaded = made(source("return F.max_pool2d(x.permute(0, 3, 1, 2), 2)", "torch.randn(3, 4, 6, 20)"))
    found = captured(loaded)
    choice = next(c for c in Design(loaded.problem, found, cpu()).choices if "strip_window" in c.name)
    ((mode, plan),) = choice.plans
    params = {f"k{k}.{name}": value for k, s in enumerate(choice.spaces) for name, value in next(s.allowed()).items()}
    new = module(render(loaded.problem, [way(mode, plan, params)], cpu(), both_modes=True)).ModelNew()
    (x,) = loaded.inputs()
    x[0, 1, 2, 3] = x[2, 0, 0, 19] = float("nan")
    torch.testing.assert_close(new(x), loaded.model()(x), rtol=0, atol=0, equal_nan=True)


def test_parts_of_channels_take_row_values_where_they_are_merged() -> None:
    """Running statistics of batch norm over images whose channels lie side by side; many columns, whose moments stay exact."""
    assert_first_plan_is_as_accurate(
        "return self.norm(x.permute(0, 3, 1, 2)).amax((2, 3))", "torch.randn(8, 60, 60, 20) + 3.0", "self.norm = nn.BatchNorm2d(20)", "train", "strip_reduction[")


def test_element_that_the_rows_of_a_strip_share_is_stored_once() -> None:
    """A loop over the rows that writes it again and again has no vectors: eleven times the time of this one."""
    forward, inputs = "w = x[..., 0].sigmoid()\nreturn (w.unsqueeze(-1) * x.tanh()).sum(1), w * 2.0", "torch.randn(9, 40, 17)"
    assert_first_plan_is_as_accurate(forward, inputs, "", "eval", "strip_reduction[")
    of = design(made(source(forward, inputs)))
    plan = next(plan for choice in of.choices for _, plan in choice.plans if len(plan.kernels) == 1 and plan.name.startswith("strip_reduction["))
    text, _ = kernel_text(Task(plan, plan.kernels[0], cpu()), {"width": 64, "vector_bits": cpu().vector_bits[-1]})
    _, per_column = text.split("for (int col = begin;")
    assert re.search(r"mul_1_out\[.*\] = .*#pragma omp simd", per_column, re.DOTALL)


def test_row_values_that_only_the_merging_of_parts_takes_are_made_there_alone() -> None:
    loaded = made(source("return self.norm(x.permute(0, 3, 1, 2)).amax((2, 3))", "torch.randn(8, 60, 60, 20)", "self.norm = nn.BatchNorm2d(20)"), "train")
    of = Design(loaded.problem, captured(loaded), replace(cpu(), threads=2))
    number = next(n for n, option in enumerate(of.options) if "strip_reduction[" in option.name)
    points = [[n for n, p in enumerate(kernel) if p.get("parts", 1) > 1] or [0] for kernel in of.options[number].kernels]
    text = of.candidate(Point(number, tuple(found[0] for found in points))).source
    assert "found" in text and text.count("float norm_running_mean_strip[") == 1


def test_sums_of_many_strided_columns_are_as_accurate_as_eager() -> None:
    """All values have one sign, so that a chain of float32 additions over all tiles would err."""
    assert_first_plan_is_as_accurate("return x.permute(0, 3, 1, 2).sigmoid().mean((0, 2, 3))", "torch.randn(8, 60, 60, 20) * 0.01", "", "eval", "strip_reduction[")


def first_plan(forward: str, inputs: str) -> tuple[torch.nn.Module, torch.nn.Module]:
    """The problem's model, and the candidate of its first plan with a kernel."""
    loaded = made(source(forward, inputs))
    of = Design(loaded.problem, captured(loaded), cpu())
    number = next(n for n, option in enumerate(of.options) if option.kernels)
    new = module(of.candidate(Point(number, (0,) * len(of.options[number].kernels)))).ModelNew()
    return loaded.model(), new


@pytest.mark.parametrize("terms", [17, 30, 64, 128, 250, 256, 400])
def test_sums_of_few_rows_err_no_more_than_eagers(terms: int) -> None:
    """No chain of float32 additions is longer than eager's; the error of eager's is one of a handful of roundings."""
    torch.manual_seed(terms)
    x = torch.rand(terms, 777)
    model, new = first_plan("return x.sum(0)", f"torch.rand({terms}, 777)")
    errors = [(m(x).double() - x.double().sum(0)).square().mean().sqrt() for m in (model, new)]
    assert errors[1] <= 1.25 * errors[0]


def test_nan_is_the_largest_and_the_smallest() -> None:
    loaded = made(source("return x.argmax(1), x.argmin(1)", "torch.randn(6, 900)"))
    found = captured(loaded)
    choice = next(c for c in Design(loaded.problem, found, cpu()).choices if not c.plans[0][1].control)
    ((mode, plan),) = choice.plans
    params = {f"k{k}.{name}": value for k, s in enumerate(choice.spaces) for name, value in next(s.allowed()).items()}
    new = module(render(loaded.problem, [way(mode, plan, params)], cpu(), both_modes=True)).ModelNew()
    x = torch.randn(6, 900)
    x[2, 700] = x[2, 300] = float("nan")
    assert all(torch.equal(got, want) for got, want in zip(new(x), (x.argmax(1), x.argmin(1))))


def test_mean_of_equal_terms_errs_no_more_than_an_epsilon() -> None:
    """Float32 sums of them err in one direction: a lane that adds up 32 is off by four epsilons."""
    loaded = made(source("return (torch.softmax(x, 1).square() + 0.3).mean((1, 2, 3))", "torch.zeros(3, 5, 151, 151)"))
    graphs = captured(loaded)
    design = Design(loaded.problem, graphs, cpu())
    number = next(n for n, option in enumerate(design.options) if "inner_reduction[mean" in option.name)
    found = module(design.candidate(Point(number, design.options[number].plainest))).ModelNew()(*loaded.inputs())
    assert (found.double() / 0.34 - 1.0).abs().max() < 1.2e-7
