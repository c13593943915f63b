"""Contractions on the CPU: operands of every layout, sizes that no block divides, and maps behind them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from models import design, made, pair, plainest, source
from test_reductions_cpu import assert_first_plan_is_as_accurate

from kgen.devices.hardware import cpu

pytestmark = pytest.mark.usefixtures("quick_builds")

LINEAR = "self.linear = nn.Linear(300, 37)"

#: Cases: forward, inputs, __init__.
CASES = {
    "a linear layer over sequences": ("return F.gelu(self.linear(x)) * self.s + self.r", "torch.randn(6, 3, 300)",
                                      f"{LINEAR}\nself.s, self.r = nn.Parameter(torch.randn(37)), nn.Parameter(torch.randn(3, 37))"),
    "a weight with its rows along n": ("return x @ self.w", "torch.randn(40, 65)", "self.w = nn.Parameter(torch.randn(65, 33))"),
    "matrices with their own transposes": ("return x @ x.mT", "torch.randn(6, 9, 20)", ""),
    "products of a batch": ("return x @ x.exp().mT", "torch.randn(6, 9, 20)", ""),
    "products of a batch with itself": ("return x @ x.mT", "torch.randn(6, 9, 20)", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_contractions_are_as_accurate_as_eager(case: str) -> None:
    forward, inputs, init = CASES[case]
    assert_first_plan_is_as_accurate(forward, inputs, init, "eval", "contraction[")


def test_each_matrix_of_a_weight_has_panels_of_its_own() -> None:
    loaded = made(source("return torch.bmm(x, self.w)", "torch.randn(6, 9, 20)", "self.w = nn.Parameter(torch.randn(6, 20, 5))"))
    model, new = pair(loaded, plainest(design(loaded), 1)[0])
    (x,) = loaded.inputs()
    torch.testing.assert_close(new(x), model(x))


def test_values_that_are_not_finite_stay_in_their_row() -> None:
    loaded = made(source("return self.linear(x)", "torch.randn(40, 300)", LINEAR))
    model, new = pair(loaded, plainest(design(loaded), 1)[0])
    (x,) = loaded.inputs()
    x[3, 5], x[17, 299] = float("nan"), float("inf")
    torch.testing.assert_close(new(x), model(x), equal_nan=True)


#: Convolutions: forward, inputs, __init__.
CONVOLUTIONS = {
    "a stride and padding": ("return self.c(x).relu() * 2.0", "torch.randn(6, 3, 19, 22)", "self.c = nn.Conv2d(3, 17, (3, 5), stride=2, padding=(1, 2))"),
    "neighbours in a row": ("return self.c(x)", "torch.randn(6, 5, 9, 70)", "self.c = nn.Conv2d(5, 6, 3, padding=1, bias=False)"),
    "dilation along a line": ("return self.c(x)", "torch.randn(6, 4, 90)", "self.c = nn.Conv1d(4, 3, 4, dilation=3)"),
    "volumes": ("return self.c(x).sigmoid()", "torch.randn(6, 2, 5, 6, 7)", "self.c = nn.Conv3d(2, 4, 2, padding=1)"),
}


@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_convolutions_are_as_accurate_as_eager(case: str) -> None:
    forward, inputs, init = CONVOLUTIONS[case]
    assert_first_plan_is_as_accurate(forward, inputs, init, "eval", "implicit_gemm[")


@pytest.mark.parametrize("bits", [(128,), (128, 256)])
@pytest.mark.parametrize(("forward", "init", "inputs"), [
    ("return self.linear(x).relu()", LINEAR, "torch.randn(41, 300)"),
    ("return self.c(x)", "self.c = nn.Conv2d(3, 17, 3, padding=1)", "torch.randn(3, 3, 7, 22)"),
])  # fmt: skip
def test_narrow_vectors(bits: tuple[int, ...], forward: str, init: str, inputs: str) -> None:
    loaded = made(source(forward, inputs, init))
    found = plainest(design(loaded, replace(cpu(), vector_bits=bits)), 1)[0]
    model, new = pair(loaded, found)
    (x,) = loaded.inputs()
    torch.testing.assert_close(new(x), model(x), rtol=1e-5, atol=1e-5)
