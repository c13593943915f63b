"""Values that neighbours along an axis have in common are computed once, by the thread that takes these neighbours."""

from __future__ import annotations

import pytest
from models import design, made, plainest, source

from kgen.devices.hardware import for_arch
from kgen.templates.cuda.pointwise.shared import shared_axis


def kernel(forward: str, inputs: str, arguments: str = "x") -> str:
    """The text of the first candidate's first kernel for a GPU."""
    found = plainest(design(made(source(forward, inputs, "", arguments)), for_arch("sm_90")))
    first = next(of for of in found if "__global__" in of.source)
    return first.source.partition("__global__")[2].partition("\n}\n")[0]


def test_a_thread_samples_several_channels_at_one_point() -> None:
    text = kernel("return F.grid_sample(x, y)", "torch.randn(2, 16, 6, 4), torch.rand(2, 6, 4, 2)", "x, y")
    once, loop, each = text.partition("for (int item = 0; item < 8; ++item, col += 24) {")
    assert loop and "floorf" in once and "y_in[" in once and "x_in[" not in once
    assert "x_in[" in each and "floorf" not in each


@pytest.mark.parametrize("size", ["(9, 7)", "(3, 2)"])
def test_rows_and_columns_are_weighted_once_for_all_channels(size: str) -> None:
    text = kernel(f"return F.interpolate(x, size={size}, mode='bicubic')", "torch.randn(2, 6, 6, 4)")
    once, loop, each = text.partition("for (int item = 0; item < 6; ++item")
    assert loop and "weight" in once and once.count("floorf") == 2 and each.count("x_in[") == 16


@pytest.mark.parametrize("forward", ["return x.exp() * x", "return (x[:, :1] * 2).exp().sin() * x"])
def test_few_values_in_common_are_computed_by_each_element(forward: str) -> None:
    found = design(made(source(forward, "torch.randn(2, 16, 6, 4)")), for_arch("sm_90"))
    for _, plan in found.choices[0].plans:
        assert all(shared_axis(plan.program(kernel)) is None for kernel in plan.kernels)
