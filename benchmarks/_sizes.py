"""Smaller sizes of a problem: the constants of its file, halved until one forward suits two CPU cores."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from kgen.errors import KgenError
from kgen.evaluator.runtime.arena import tensors
from kgen.problems.problem import load, read_problem, without_values

MOST_BYTES, MOST_FLOPS = 8 << 20, 4 << 28  # of inputs, parameters and outputs; of a forward
Size = int | tuple[int, ...]
LEAST = 16  # a smaller constant is a kernel's size, a stride or a number of groups


def cut(file: Path) -> dict[str, str]:
    """Overrides by name. The largest constant is halved again and again, with equal ones where it cannot be alone."""
    constants = vars(load(read_problem(str(file), {})).module)
    sizes: dict[str, Size] = {name: value for name, value in constants.items() if _largest(value) >= LEAST}
    found: dict[str, Size] = {}
    while sizes and not _is_small(file, found):
        largest = max(map(_largest, sizes.values()))
        alike = {name: _halved(value) for name, value in sizes.items() if _largest(value) == largest}
        alone = dict([next(iter(alike.items()))])
        tried = next((some for some in (alone, alike) if _work(file, found | some) is not None), None)
        if tried is None:
            del sizes[next(iter(alone))]
        else:
            found |= tried
            sizes = {name: value for name, value in (sizes | tried).items() if _largest(value) >= LEAST}
    return {name: str(value) for name, value in found.items()}


def _largest(value: object) -> int:
    """The largest number in a size; 0 for what is none."""
    if isinstance(value, tuple) and value:
        return max(map(_largest, value))
    return value if type(value) is int else 0


def _halved(value: Size) -> Size:
    if isinstance(value, tuple):
        return tuple(n // 2 if n == max(value) else n for n in value)
    return value // 2


def _is_small(file: Path, sizes: dict[str, Size]) -> bool:
    work = _work(file, sizes)
    return work is not None and work[0] <= MOST_BYTES and work[1] <= MOST_FLOPS


def _work(file: Path, sizes: dict[str, Size]) -> tuple[int, int] | None:
    """Bytes and floating-point operations of a forward on meta; ``None`` where these sizes do not fit together."""
    try:
        loaded = load(read_problem(str(file), {name: str(value) for name, value in sizes.items()}))
        model, inputs = without_values(loaded.model), without_values(loaded.inputs)
        with FlopCounterMode(display=False) as counted, torch.no_grad():
            output = model(*inputs)
    except (KgenError, RuntimeError, ValueError, TypeError, AssertionError):
        return None
    every = [*tensors([inputs]), *model.parameters(), *tensors([output])]
    return sum(x.numel() * x.element_size() for x in every), counted.get_total_flops()
