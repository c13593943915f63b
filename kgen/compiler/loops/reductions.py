"""Reductions of a loop program in float64 with torch: functions of a tensor whose last dimension is reduced."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from torch import Tensor

_LOWEST = -3.4028234663852886e38  #: of float32, where maxima of finite numbers start


def _max_finite(x: Tensor) -> Tensor:
    import torch

    return torch.nan_to_num(x, nan=_LOWEST, posinf=math.inf, neginf=_LOWEST).amax(-1)


def _softmax(x: Tensor) -> list[Tensor]:
    import torch

    most = _max_finite(x)
    shift = torch.where(most.abs() == math.inf, torch.zeros_like(most), most)
    return [most, (x - shift.unsqueeze(-1)).exp().sum(-1)]


def _moments(x: Tensor) -> list[Tensor]:
    import torch

    mean = x.mean(-1, keepdim=True)
    return [torch.full_like(mean.squeeze(-1), x.shape[-1]), mean.squeeze(-1), (x - mean).square().sum(-1)]


def _extreme_at(x: Tensor, places: Tensor, most: bool) -> list[Tensor]:
    """The extreme, or NaN where there is one, and the first of its places."""
    import torch

    extreme = x.amax(-1) if most else x.amin(-1)
    where = (x == extreme.unsqueeze(-1)) | (x.isnan() if x.is_floating_point() else False)
    return [extreme, torch.where(where, places, torch.iinfo(torch.int64).max).amin(-1)]


#: The results of each kind of reduction, over the last dimension.
REDUCTIONS: dict[str, Callable[..., list[Tensor]]] = {
    "sum": lambda x: [x.sum(-1)],
    "product": lambda x: [x.prod(-1)],
    "max": lambda x: [x.amax(-1)],
    "min": lambda x: [x.amin(-1)],
    "argmax": lambda x, places: _extreme_at(x, places, most=True),
    "argmin": lambda x, places: _extreme_at(x, places, most=False),
    "moments": _moments,
    "max_finite": lambda x: [_max_finite(x)],
    "softmax": _softmax,
    "whole_sum": lambda x: [x.sum(-1)],
    "whole_product": lambda x: [x.prod(-1)],
    "whole_max": lambda x: [x.amax(-1)],
    "whole_min": lambda x: [x.amin(-1)],
}  # fmt: skip
