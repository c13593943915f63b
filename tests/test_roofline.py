"""The roofline: a problem's least work, the arithmetic of a candidate, and what a time comes to."""

from __future__ import annotations

import json

import pytest
from models import graph, made, reference, source
from running import Ended, Home

from kgen.candidate import Plan
from kgen.codegen.registry import arithmetic
from kgen.codegen.roofline import Arithmetic, Basis, Work, of
from kgen.devices.hardware import Ceilings, cpu
from kgen.protocol import Accuracy

H200 = Ceilings(4230.0, 51.0, 413.0, 774.0)
FULL = {"batch_size": "1024", "in_features": "8192", "out_features": "8192"}
#: The product of 1024 x 8192 by 8192 x 8192, and 1 GB moved.
LARGE = Basis(Work(2 * 1024 * 8192 * 8192, 1_000_000_000), H200)


def work(forward: str, inputs: str, init: str = "", arguments: str = "x", mode: str = "eval") -> Work:
    return Work.of(graph(made(source(forward, inputs, init, arguments), mode)))


def test_product_counts_two_operations_for_each_term() -> None:
    assert Work.of(graph(reference("linear_gelu_softmax", "eval", **FULL))).flops == 2 * 1024 * 8192 * 8192


@pytest.mark.parametrize(
    ("forward", "inputs", "init", "arguments", "flops"),
    [
        ("return torch.matmul(x, self.w)", "torch.randn(6, 12)", "self.w = nn.Parameter(torch.randn(12, 20))", "x", 2 * 6 * 12 * 20),
        ("return torch.matmul(x, y)", "torch.randn(4, 6, 12), torch.randn(4, 12, 20)", "", "x, y", 2 * 4 * 6 * 12 * 20),
        ("return self.conv(x)", "torch.randn(2, 3, 8, 8)", "self.conv = nn.Conv2d(3, 5, 3)", "x", 2 * 2 * 5 * 6 * 6 * 27),
        ("return x.relu()", "torch.randn(6, 12)", "", "x", 0),
    ],
)  # fmt: skip
def test_operations_are_those_of_contractions(forward: str, inputs: str, init: str, arguments: str, flops: int) -> None:
    assert work(forward, inputs, init, arguments).flops == flops


def test_inputs_weights_and_outputs_are_moved_once() -> None:
    found = work("return self.linear(x).relu()", "torch.randn(6, 12)", "self.linear = nn.Linear(12, 20)")
    assert found.nbytes == 4 * (6 * 12 + 12 * 20 + 20 + 6 * 20)


def test_operators_of_several_results_have_work() -> None:
    found = work("a, b = x.split(6, dim=1)\nreturn a @ b.T", "torch.randn(6, 12)")
    assert (found.flops, found.half) == (2 * 6 * 6 * 6, False)


def test_buffers_that_change_are_moved_twice() -> None:
    norm = ("return self.norm(x)", "torch.randn(6, 12)", "self.norm = nn.BatchNorm1d(12)")
    changed = 4 * 12 * 2 + 8  # running mean and variance, and the counter
    assert work(*norm, mode="train").nbytes == 4 * 6 * 12 * 2 + 4 * 12 * 4 + 8 + changed


OWN, GELU, LIBRARY = ("contraction", ["linear"]), ("pointwise", ["gelu"]), ("", ["linear"])
CONTROL = Plan.of_mode([LIBRARY])
BOTH = Plan.of_modes([("train", Plan.of_mode([OWN])), ("eval", CONTROL)])


@pytest.mark.parametrize(
    ("plan", "params", "accuracy", "expected"),
    [
        (Plan.of_mode([OWN, GELU]), {"k0.products": 3, "k1.block": 256}, Accuracy.FP32, Arithmetic("float16", 3)),
        (BOTH, {"train.k0.products": 1}, Accuracy.TF32, Arithmetic("float16")),
        (Plan.of_mode([LIBRARY, GELU]), {"k0.block": 256}, Accuracy.FP32, Arithmetic("float32")),
        (CONTROL, {}, Accuracy.TF32, Arithmetic("tf32")),
        (Plan(), {}, Accuracy.FP32, Arithmetic("float32")),
    ],
)  # fmt: skip
def test_arithmetic_is_that_of_the_contractions(plan: Plan, params: dict, accuracy: Accuracy, expected: Arithmetic) -> None:
    assert arithmetic("cuda", plan, params, accuracy) == expected


def test_three_products_count_threefold() -> None:
    found = of(LARGE, 0.71, Arithmetic("float16", 3))
    assert found.tflops == pytest.approx(193.6, rel=1e-3)
    assert found.of_contractions == pytest.approx(3 * 193.6 / 774, rel=1e-3)
    assert (found.bound, found.fraction) == ("contractions", found.of_contractions)


def test_work_without_products_is_bound_by_memory() -> None:
    found = of(Basis(Work(0, 4_230_000_000), H200), 2.0, Arithmetic("float32"))
    assert (found.tflops, found.bound, found.fraction) == (None, "memory", pytest.approx(0.5))
    assert str(found) == "2.12 TB/s, 50% of a copy"


def test_device_of_unknown_ceilings_has_rates_and_no_shares() -> None:
    found = of(Basis(LARGE.work, Ceilings()), 2.8, Arithmetic("float32"))
    assert found.fraction is None and found.bound is None
    assert str(found) == "49.1 TFLOP/s, no ceiling known for float32; 0.357 TB/s, no ceiling known for a copy"


def test_line_names_the_arithmetic() -> None:
    line = str(of(LARGE, 0.71, Arithmetic("float16", 3)))
    assert line == "194 TFLOP/s, 75% of 3 products of float16; 1.41 TB/s, 33% of a copy"


def test_basis_is_read_back_from_json() -> None:
    assert Basis.read(json.loads(json.dumps(LARGE.plain()))) == LARGE


def test_sweep_that_kept_nothing_has_no_basis() -> None:
    assert Basis.read(None) is None


def test_sweep_keeps_what_its_rooflines_are_drawn_from(swept: tuple[Home, Ended]) -> None:
    home, _ = swept
    ((arguments,),) = home.ask("select arguments from sweep")
    found = Basis.read(json.loads(arguments)["roofline"])
    assert found is not None and found.work.flops > 0 and found.ceilings == cpu().ceilings


def test_products_of_half_types_count_at_the_rate_of_float16_in_any_class() -> None:
    text = source("return self.l(x)", "torch.randn(64, 32)", "self.l = nn.Linear(32, 16)")
    for dtype, type_ in (("", "tf32"), ('\n\n__dtype__ = "bfloat16"  # kgen converts the model\n', "float16")):
        basis = Basis(Work.of(graph(made(text + dtype))), Ceilings(1000.0, 10.0, 50.0, 100.0))
        assert Basis.read(basis.plain()) == basis
        assert of(basis, 1.0, Arithmetic.of_library(Accuracy.PYTORCH)).arithmetic.type == type_
