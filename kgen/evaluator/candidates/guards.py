"""The memory around a call: fences beside its inputs, and outputs that share memory with something else.

The functions of torch are bound here, before a candidate is loaded.
"""

from typing import Any

import torch

from kgen.evaluator.runtime.arena import describe, is_inexact, same_bits, span, tensors

FENCE = 512  #: elements on each side of an input; keeps it aligned to 512 bytes

Guard = tuple[torch.Tensor, torch.Tensor]  #: a tensor's memory with fences around it, and the fences as they must stay

_copy, _fill = torch.Tensor.copy_, torch.Tensor.fill_


def guarded(x: torch.Tensor, device: str, guards: list[Guard], guard: torch.Tensor | None = None) -> torch.Tensor:
    """A copy of ``x`` between fences of NaN or the largest integer: reads and writes beyond it show. The copy's guard
    is added to ``guards``. The guard is made on ``device``, unless ``guard`` is given."""
    fill = float("nan") if is_inexact(x) else True if x.dtype == torch.bool else torch.iinfo(x.dtype).max
    guard = torch.empty(span(x) + 2 * FENCE, dtype=x.dtype, device=device) if guard is None else guard
    _fill(guard, fill)
    guards.append((guard, _fences(guard)))
    return _copy(guard.as_strided(x.shape, x.stride(), guard.storage_offset() + FENCE), x)


def _fences(guard: torch.Tensor) -> torch.Tensor:
    """The elements before and behind the tensor in ``guard``."""
    return torch.cat([guard[:FENCE], guard[-FENCE:]])


def beside(guards: list[Guard]) -> str:
    """Memory beside a tensor, if a fence has changed."""
    return "" if all(same_bits(_fences(guard), fences) for guard, fences in guards) else "memory beside an input"


def mutated(inputs: list[Any], pristine: list[Any]) -> str:
    """The first of ``inputs`` that has not the bits of its ``pristine`` counterpart, by its number."""
    same = list(map(bitwise, inputs, pristine))
    return "" if all(same) else f"input {same.index(False)}"


def bitwise(a: Any, b: Any) -> bool:
    """Whether two values have the same structure and the same bits."""
    return describe(a)[0] == describe(b)[0] and all(map(same_bits, tensors(a), tensors(b)))


def overlaps(output: Any, others: list[torch.Tensor]) -> bool:
    """Whether a tensor of ``output`` shares memory with one of ``others``."""
    spans = [_bytes(x) for x in others if x.numel()]
    return any(
        start < other_end and other_start < end
        for start, end in (_bytes(x) for x in tensors(output) if x.numel())
        for other_start, other_end in spans
    )


def earlier(output: Any, others: list[torch.Tensor]) -> str:
    """An earlier output, if a tensor of ``output`` shares memory with it."""
    return "an earlier call's output" if overlaps(output, others) else ""


def _bytes(x: torch.Tensor) -> tuple[int, int]:
    """The first address of a tensor's memory, and the address behind it."""
    storage = x.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()
