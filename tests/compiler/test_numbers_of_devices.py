"""Numbers that are not finite, or leave the range of floats, as PyTorch has them on each kind of device."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from models import graph, made, source

from kgen.compiler.capture.capture import capture
from kgen.compiler.capture.resizing import RESIZES
from kgen.compiler.loops.evaluation import evaluate
from kgen.compiler.lower.lowering import lower
from kgen.compiler.rewrites.few import reduce_few_by_threads
from kgen.compiler.rewrites.sampling import sample_channels_last

NAN, INF = float("nan"), float("inf")


def sampled(x: torch.Tensor, grid: torch.Tensor, padding: str, device: str = "cpu") -> torch.Tensor:
    """What kernels for a kind of device compute, in float64."""
    text = source(f"return F.grid_sample(x, y, padding_mode='{padding}', align_corners=True)", f"torch.randn{tuple(x.shape)}, torch.randn{tuple(grid.shape)}", "", "x, y")
    ((_, of),) = capture(made(text), device).graphs
    (node,) = of.nodes
    return evaluate(lower(of, [node.name], [node.name]), {"x": x.double(), "y": grid.double()})[node.name].reshape(node.type.shape)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_points_of_a_volume_that_are_not_finite_are_taken_as_pytorch_takes_them(padding: str) -> None:
    x, grid = torch.randn(2, 3, 5, 4, 3), torch.rand(2, 3, 1, 2, 3) * 2 - 1
    grid[0, 0, 0, 0, 0], grid[0, 1, 0, 1, 1], grid[1, 2, 0, 0, 2] = NAN, INF, -INF
    torch.testing.assert_close(sampled(x, grid, padding), F.grid_sample(x.double(), grid.double(), padding_mode=padding, align_corners=True), equal_nan=True)


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_points_that_are_not_finite_are_taken_as_pytorch_takes_them(padding: str) -> None:
    x, grid = torch.randn(2, 3, 5, 4), torch.rand(2, 3, 2, 2) * 2 - 1
    grid[0, 0, 0, 0], grid[0, 1, 1, 1], grid[1, 2, 0, 0] = NAN, INF, -INF
    torch.testing.assert_close(sampled(x, grid, padding), F.grid_sample(x.double(), grid.double(), padding_mode=padding, align_corners=True), equal_nan=True)


def test_a_point_that_is_not_finite_lies_outside_on_a_gpu() -> None:
    x, grid = torch.randn(2, 3, 5, 4), torch.rand(2, 3, 2, 2) * 2 - 1
    grid[0, 0, 0, 0], grid[0, 1, 1, 1], grid[1, 2, 0, 0] = NAN, INF, -INF
    expected = F.grid_sample(x.double(), grid.nan_to_num(5.0, 5.0, -5.0).double(), align_corners=True)
    torch.testing.assert_close(sampled(x, grid, "zeros", "cuda"), expected)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_samples_with_channels_last_are_those_with_channels_first(mode: str) -> None:
    x, grid = torch.randn(2, 16, 5, 4, dtype=torch.float64), torch.rand(2, 6, 3, 2, dtype=torch.float64) * 3 - 1.5
    text = source(f"return F.grid_sample(x, y, '{mode}')", "torch.randn(2, 16, 5, 4), torch.rand(2, 6, 3, 2)", "", "x, y")
    of = sample_channels_last(graph(made(text)))
    (node,) = (n for n in of.nodes if n.op == "grid_sample")
    found = evaluate(lower(of, [node.name], [node.name]), {node.inputs[0]: x.permute(0, 2, 3, 1).contiguous(), "y": grid})
    expected = F.grid_sample(x, grid, mode, align_corners=False).permute(0, 2, 3, 1)
    torch.testing.assert_close(found[node.name].reshape(node.type.shape), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_pixels_beyond_an_antialiased_filter_do_not_count(mode: str) -> None:
    x = torch.randn(1, 1, 9, 7)
    x[0, 0, 2, 3] = NAN
    found = RESIZES[f"aten._upsample_{mode}2d_aa.vec"](x, (4, 5), False)
    expected = F.interpolate(x, (4, 5), mode=mode, antialias=True)
    assert not (found.isnan() & ~expected.isnan()).any()
    torch.testing.assert_close(found[~expected.isnan()], expected[~expected.isnan()])


@pytest.mark.parametrize(("device", "expected"), [("cpu", 0.0), ("cuda", 1.0)])
def test_products_of_few_leave_the_range_of_floats_where_pytorchs_do(device: str, expected: float) -> None:
    ((_, of),) = capture(made(source("return x.prod(1)", "torch.randn(8, 8, 40)")), device).graphs
    factors = torch.tensor([1e-200, 1e-200, 1.0, 1.0, 1e200, 1e200, 1.0, 1.0], dtype=torch.float64)
    found = evaluate(lower(reduce_few_by_threads(of), ["prod"], ["prod"]), {"x": factors[:, None].expand(8, 8, 40)})["prod"]
    torch.testing.assert_close(found, torch.full_like(found, expected))
