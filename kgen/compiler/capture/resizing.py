"""Decompositions of operators that resize images, in ATen's operators: sums of few weighted pixels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Sequence

from kgen.compiler.operators.reductions import MOST_FEW

if TYPE_CHECKING:
    import torch


def _at(x: torch.Tensor, dim: int, places: torch.Tensor) -> torch.Tensor:
    """A dimension as two: the pixels of the result, and those that each is made of."""
    import torch

    found = torch.ops.aten.index_select.default(x, dim, places.reshape(-1))
    return found.reshape(*x.shape[:dim], *places.shape, *x.shape[dim + 1 :])


def _antialiased(reach: float, weight: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """A resize whose filter is as wide as ``reach`` pixels of the smaller image on either side; columns first, as
    PyTorch does."""

    def run(
        x: torch.Tensor,
        output_size: Sequence[int] | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None = None,
    ) -> Any:
        import torch

        if align_corners or x.dtype != torch.float32 or (output_size is None) == (scale_factors is None):
            return NotImplemented
        for dim in (3, 2):
            size, factor = x.shape[dim], scale_factors and scale_factors[dim - 2]
            count = int(size * factor) if factor else output_size[dim - 2]
            scale = 1.0 / factor if factor else size / count
            wide = max(scale, 1.0)
            centre = (torch.arange(count, device=x.device)[:, None].to(torch.float32) + 0.5) * scale
            first = (centre - reach * wide + 0.5).clamp_min(0.0).to(torch.int64)
            end = (centre + reach * wide + 0.5).clamp_max(float(size)).to(torch.int64)
            taps = 2 * math.ceil(reach * wide) + 1
            if taps > MOST_FEW:
                return NotImplemented
            places = first + torch.arange(taps, device=x.device)
            weights = torch.where(places < end, weight((places.to(torch.float32) - centre + 0.5) * (1.0 / wide)), 0.0)
            found = _at(x, dim, torch.minimum(places, places.new_full((), size - 1)))
            behind = (1,) * (3 - dim)
            own = weights.reshape(*weights.shape, *behind)
            part = torch.where(own != 0.0, found * own, 0.0)  # PyTorch reads no pixel beyond the filter
            x = part.sum([dim + 1]) / sum(weights.unbind(1)).reshape(-1, *behind)
        return x

    return run


def _triangle(x: torch.Tensor) -> torch.Tensor:
    return (1.0 - x.abs()).clamp_min(0.0)


def _cubic(x: torch.Tensor) -> torch.Tensor:
    """The filter of Keys, with -0.5."""
    import torch

    x = x.abs()
    return torch.where(
        x < 1.0, (1.5 * x - 2.5) * x * x + 1.0, torch.where(x < 2.0, ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0, 0.0)
    )


def _between(size: int, count: int, factor: float | None, align_corners: bool, device: Any) -> tuple[torch.Tensor, ...]:
    """For each of ``count`` pixels of a larger or smaller line: the pixels before and behind it, and the weights of
    both."""
    import torch

    scale = (size - 1) / max(count - 1, 1) if align_corners else 1.0 / factor if factor else size / count
    at = torch.arange(count, device=device).to(torch.float32)
    at = at * scale if align_corners else ((at + 0.5) * scale - 0.5).clamp_min(0.0)
    before = at.to(torch.int64).clamp(0, size - 1)
    weight = at - before.to(torch.float32)
    return before, (before + 1).clamp(0, size - 1), 1.0 - weight, weight


def _bilinear(x: torch.Tensor, sizes: Sequence[int], align_corners: bool, *factors: float | None) -> Any:
    """Weighted sums of weighted sums, as PyTorch's kernels have it: infinite pixels spoil the same results."""
    import torch

    if x.is_cuda and [*x.shape[2:]] == [*sizes]:  # a copy there, and a sum on a CPU
        return x.clone()
    (top, bottom, *rows), (left, right, *cols) = (
        _between(size, count, factor, align_corners, x.device)
        for size, count, factor in zip(x.shape[2:], sizes, factors)
    )
    wide = x.to(torch.float32)
    lines = (
        [torch.ops.aten.index.Tensor(wide, [None, None, row.unsqueeze(1), col]) for col in (left, right)]
        for row in (top, bottom)
    )
    found = [a * cols[0] + b * cols[1] for a, b in lines]
    return (found[0] * rows[0].unsqueeze(1) + found[1] * rows[1].unsqueeze(1)).to(x.dtype)


def _bilinear_by_factors(x: torch.Tensor, output_size: Any, align_corners: bool, scale_factors: Any) -> Any:
    sizes = output_size or [int(size * factor) for size, factor in zip(x.shape[2:], scale_factors)]
    return _bilinear(x, sizes, align_corners, *(scale_factors or (None, None)))


def _default(
    x: torch.Tensor, sizes: Sequence[int], align_corners: bool, height: float | None = None, width: float | None = None
) -> Any:
    return _bilinear(x, sizes, align_corners, height, width)


#: By the operators' names.
RESIZES: dict[str, Callable[..., Any]] = {
    "aten.upsample_bilinear2d.default": _default,
    "aten.upsample_bilinear2d.vec": _bilinear_by_factors,
    "aten._upsample_bilinear2d_aa.vec": _antialiased(1.0, _triangle),
    "aten._upsample_bicubic2d_aa.vec": _antialiased(2.0, _cubic),
}
