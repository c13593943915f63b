"""Excuses: elements of a test case where more than one result is right."""

from typing import Any, Callable

import torch

from kgen.evaluator.correctness.cases import Case
from kgen.evaluator.correctness.distributions import HALF, NON_FINITE
from kgen.evaluator.correctness.tolerance import as_real
from kgen.evaluator.runtime.arena import map_tensors

_FILLS = (0.0, 1e30, -2e30)  #: replace NaN and infinities, to see which results depend on them
_SMALLER = 2.0**-20  #: factor of inputs, to see which NaN come from their size
_VANISHING = torch.finfo(torch.float32).tiny  #: a factor that may be zero in float32


def excuse(case: Case, exact: Callable[..., list[torch.Tensor]], *, masks: bool) -> None:
    """Find elements where more than one result is right. Finite inputs: a NaN that smaller inputs do not give may be
    anything, since the order of operations decides. Non-finite inputs: an element may be NaN where attention takes
    minus infinity for a mask. It may be finite where it does not depend on the non-finite inputs, or only through a
    product with zero. Behind factors whose product vanishes in float32, NaN and infinity are both right.

    ``exact(inputs, **how)`` gives the outputs in float64; ``masks`` says that attention takes minus infinity so."""

    def change(how: Callable[[torch.Tensor], torch.Tensor]) -> Any:
        return map_tensors(
            case.inputs, lambda x: how(x.double() if x.dtype in HALF else x) if x.is_floating_point() else x
        )

    if case.distribution.values != NON_FINITE:
        lost = [expected.nan for expected in case.expected]
        if any(bool(places.any()) for places in lost):
            for expected, places, value in zip(case.expected, lost, exact(change(lambda x: x * _SMALLER))):
                expected.excuse(places & torch.isfinite(as_real(value)))
        return
    if masks:
        for expected, value in zip(case.expected, exact(case.inputs, bare=True)):
            expected.excuse(torch.isfinite(expected.exact) & ~torch.isfinite(as_real(value)))
    sparse = exact(case.inputs, sparse=True)
    runs = [exact(change(lambda x: x.nan_to_num(number, number, number))) for number in _FILLS]
    for expected, *found in zip(case.expected, sparse, *runs):
        values = [as_real(value) for value in found]
        if expected.free is not None and all(value.shape == expected.exact.shape for value in values):
            without, first, *others = (value.double().reshape(-1)[expected.free] for value in values)
            same = torch.stack([first == other for other in others]).all(0)
            expected.otherwise = first.where(same, without)
            expected.either = expected.either | torch.stack(
                [(other - first).abs() <= abs(number) * _VANISHING for other, number in zip(others, _FILLS[1:])]
            ).all(0)
