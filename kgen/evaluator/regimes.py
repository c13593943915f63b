"""Regimes: the values and shapes under which a candidate must be right.

A regime changes the inputs that the problem's ``get_inputs()`` makes: the values of its floating tensors by one entry
of :data:`VALUES`, its batch by slicing, and the weights by one entry of :data:`WEIGHTS`. A new regime is one entry in
:data:`REGIMES`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import reduce
from typing import Any, Callable, Iterator, Mapping, Sequence
from zlib import crc32

import torch

from kgen.evaluator.arena import is_inexact, leaves, map_tensors, tensors
from kgen.evaluator.protocol import ALL_ROWS, SCALED

FULL, REDUCED = 0, -1  #: special batches: the problem's own; a smaller one where the batch is free
REDUCED_ROWS = {"cpu": 64, "cuda": 256}
_MOST_DRAWN, _MOST_ROWS_DRAWN = 63, 384
#: What :data:`SCALED` multiplies row after row by: signs, and sizes at which activations bend, vanish and overflow.
_FACTORS = (1.0, 4.0, -1.0, 100.0, 0.01, -30.0)
_FEW = 4096  #: elements of a weight that tell which one of it is changed, and by how much
_LOOKED_AT = 16  #: entries of the first index, to see whether integers depend on each other
_copy, _detach = torch.Tensor.copy_, torch.Tensor.detach  # bound here: an input may be given methods of that name


@dataclass(frozen=True)
class Regime:
    """One way to try a candidate. ``batch`` is a number of rows, :data:`FULL` or :data:`REDUCED`."""

    name: str
    values: str = "given"
    weights: str = "drawn"
    batch: int = REDUCED

    @property
    def shape_only(self) -> bool:
        """Whether only the batch differs from what the problem gives."""
        return self.batch > 0


#: In the order in which they are tried: those that most often find something wrong come first.
REGIMES = (
    Regime("as given", batch=FULL),
    Regime("other weights", weights="rolled"),
    # Where vectors are changed back, and then matrices are changed, everything else stays: half of a fold may be stale.
    Regime("other vectors", weights="vectors"),
    Regime(ALL_ROWS, values=SCALED, batch=FULL),
    Regime("other matrices", weights="matrices"),
    Regime("all positive", values="positive", weights="positive"),
    Regime("x 4", values="fourfold"),
    Regime("x 1e2", values="large"),
    Regime("rows of different size", values="rows"),
    Regime("x 1e-2", values="small"),
    Regime("zeros", values="zeros"),
    Regime("sparse outliers", values="outliers"),
    Regime("sign flipped", values="flipped"),
    Regime("shifted by 100 std", values="shifted"),
    Regime("NaN and infinities", values="non-finite"),
    Regime("batch 1", batch=1),
    Regime("batch 7", batch=7),
    Regime("batch 63", batch=63),
    Regime("batch 65", batch=65),
)


def drawn_batches(secret: int, rows: int) -> list[Regime]:
    """Batches below ``rows`` that nobody can know beforehand, with the remainders of eight that no fixed one has: two
    or six, four, three or five. The last is larger than tiles of 128 and 256 rows, where ``rows`` allows it: it has a
    whole one and a part of one."""
    generator, small, large = random.Random(secret), min(rows, _MOST_DRAWN), min(rows, _MOST_ROWS_DRAWN)
    choices = (
        range(2, small, 4), range(4, small, 8), [n for n in range(2 * large // 3, large) if n % 8 in (3, 5)],
    )
    return [Regime(f"batch {n}, drawn", batch=n) for n in (generator.choice(given) for given in choices if given)]


#: What KernelBench's own check corresponds to.
KERNELBENCH_REGIMES = REGIMES[:2]


def _scaled(x: torch.Tensor) -> torch.Tensor:
    """Rows times one factor after the other."""
    if not x.ndim:
        return x
    factors = torch.tensor(_FACTORS, device=x.device).repeat(-(-x.shape[0] // len(_FACTORS)))[: x.shape[0]]
    return x * factors.view(-1, *[1] * (x.ndim - 1))


def _rows(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if x.ndim < 1:
        return x
    exponent = torch.rand(x.shape[:1], generator=generator) * 6 - 3
    return x * (10.0**exponent).view(-1, *[1] * (x.ndim - 1))


def _outliers(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return torch.where(torch.rand(x.shape, generator=generator) < 1e-3, x * 100, x)


def _shifted(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return x + 100 * x.std() if x.numel() > 1 else x + 100


def _non_finite(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """NaN, infinity and minus infinity, each in one place of one row."""
    if not x.numel():
        return x
    x = x.clone()
    flat = x.view(x.shape[0], -1) if x.ndim else x.view(1, 1)
    rows = (0, flat.shape[0] // 2, flat.shape[0] - 1)
    for row, value in zip(rows, (float("nan"), float("inf"), float("-inf"))):
        flat[row, int(torch.randint(flat.shape[1], (1,), generator=generator))] = value
    return x


#: What each regime does to a floating input.
VALUES: Mapping[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "given": lambda x, generator: x,
    "small": lambda x, generator: x * 1e-2,
    "fourfold": lambda x, generator: x * 4,  # where activations bend and saturate, of inputs of about one
    "large": lambda x, generator: x * 1e2,
    "zeros": lambda x, generator: torch.zeros_like(x),
    "flipped": lambda x, generator: -x,
    "positive": lambda x, generator: x.abs(),
    "outliers": _outliers,
    "rows": _rows,
    SCALED: lambda x, generator: _scaled(x),
    "shifted": _shifted,
    "non-finite": _non_finite,
}


def _rolled(x: torch.Tensor) -> torch.Tensor:
    return torch.roll(x, 1, 0) if x.ndim and x.shape[0] > 1 else x * 1.25


def _one_changed(x: torch.Tensor) -> torch.Tensor:
    """One element larger by itself, or by the largest of a few in the middle if that is more: who looks at some elements,
    to see whether others changed, sees nothing. A checksum of those few says which one it is, so that the oracle and a
    worker choose the same. (They are looked at on the CPU: a reduction on a GPU would load kernels, which takes a
    process some 30 ms.)"""
    if not x.numel():
        return x
    changed = x.clone(memory_format=torch.contiguous_format)
    flat, middle = changed.view(-1), x.numel() // 2
    few = flat[max(0, middle - _FEW // 2) : middle + _FEW // 2].cpu()
    most = few.abs().max() if bool(few.any()) else flat.abs().max().cpu()
    place = crc32(bytes(few.view(torch.uint8).tolist())) % x.numel()
    old = flat[place : place + 1].cpu()
    flat[place : place + 1].copy_(old + torch.maximum(most, old.abs()))
    return changed


#: What each regime does to a floating tensor of the state dict; the worker does the same to its copy.
WEIGHTS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "drawn": lambda x: x,
    "rolled": _rolled,
    "matrices": lambda x: _one_changed(x) if x.ndim > 1 else x,
    "vectors": lambda x: x if x.ndim > 1 else _one_changed(x),
    "positive": lambda x: x.abs(),
}


def change_weights(state: Mapping[str, torch.Tensor], how: str) -> dict[str, torch.Tensor]:
    """``state`` with :data:`WEIGHTS`' entry ``how`` applied to its floating tensors."""
    change = WEIGHTS[how]
    return {name: change(value) if value.is_floating_point() else value for name, value in state.items()}


def moved_buffers(state: Mapping[str, torch.Tensor], key: int, mode: str) -> dict[str, torch.Tensor]:
    """``state`` as the buffers of a timed call with ``key`` begin. In train mode, where they change with every call,
    they are others every other time, so that who keeps a copy of them shows."""
    return change_weights(state, "rolled" if key % 2 and mode == "train" else "drawn")


def change_inputs(inputs: Sequence[Any], how: str, seed: int) -> list[Any]:
    """``inputs`` with :data:`VALUES`' entry ``how`` applied to their floating tensors."""
    generator = torch.Generator().manual_seed(seed)
    change = VALUES[how]

    def one(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return x
        changed = change(x, generator)
        # A problem that gives a non-contiguous input means it: its strides are kept.
        return changed if changed.stride() == x.stride() else torch.empty_like(x).copy_(changed)

    return map_tensors(list(inputs), one)


def batch_size(inputs: Sequence[Any]) -> int | None:
    """The number of rows of the first tensor, taken for the batch; ``None`` without one."""
    found = [x for x in tensors(list(inputs)) if x.ndim]
    return found[0].shape[0] if found else None


def slice_batch(inputs: Sequence[Any], rows: int) -> list[Any]:
    """The first ``rows`` rows of each tensor whose first dimension is the batch."""
    batch = batch_size(inputs)

    def one(x: torch.Tensor) -> torch.Tensor:
        return x[:rows] if x.ndim and x.shape[0] == batch else x

    return map_tensors(list(inputs), one)


def recombine(
    buffers: Any, pool: Sequence[Any], key: int, values: str = "given", *, but_a_column: bool = False
) -> None:
    """Fill ``buffers`` with contents that were never there before: elements of two input sets, mixed as ``key`` says.

    Which set an element comes from is the exclusive or of a bit for each of its indices, so that neither a row nor
    a column comes twice, and a result kept for one serves nobody. Integers that seem to depend on each other along a
    row are chosen by the first index alone, and where they have but one, all together. With ``but_a_column``, the last
    index has a value, which ``key`` says too, where elements come from the other of the two sets:
    :func:`recombine_column` puts them right. ``values`` is an entry of :data:`VALUES` that does the same to an element
    whatever the others are.
    """
    for buffer, bits, a, b, column in _mixed(buffers, pool, key, values):
        choice = reduce(torch.logical_xor, bits)
        if but_a_column:
            choice = choice ^ (torch.arange(buffer.shape[-1], device=buffer.device) == column)
        _copy(buffer, torch.where(choice, a, b))


def recombine_column(buffers: Any, pool: Sequence[Any], key: int, values: str = "given") -> None:
    """Write what :func:`recombine` leaves wrong with ``but_a_column``."""
    for buffer, bits, a, b, column in _mixed(buffers, pool, key, values):
        choice = reduce(torch.logical_xor, (bit[..., column if bit.ndim == 1 else 0] for bit in bits))
        _copy(buffer[..., column], torch.where(choice, a[..., column], b[..., column]))


def _mixed(
    buffers: Any, pool: Sequence[Any], key: int, values: str
) -> Iterator[tuple[torch.Tensor, list[torch.Tensor], torch.Tensor, torch.Tensor, int]]:
    """Each tensor of ``buffers`` as one of a dimension at least, truth values for its indices whose exclusive or says
    from which of two tensors an element comes (they broadcast; those of the last index have one dimension), these two,
    and a value of the last index."""
    generator = torch.Generator().manual_seed(key)
    chosen = torch.randperm(len(pool), generator=generator)[:2]
    first, second = (change_inputs(pool[int(i)], values, key) for i in chosen)
    for (_, buffer), (_, a), (_, b) in zip(leaves(buffers), leaves(first), leaves(second)):
        if isinstance(buffer, torch.Tensor) and 0 not in buffer.shape:
            # Detached, for it may have been marked as something to differentiate by.
            buffer, a, b = (x if x.ndim else x[None] for x in (_detach(buffer), a, b))
            yield buffer, _choices(a, b, generator), a, b, key % buffer.shape[-1]


def _choices(a: torch.Tensor, b: torch.Tensor, generator: torch.Generator) -> list[torch.Tensor]:
    """A truth value for each value of an index, drawn on the CPU, so that every device gets the same."""
    independent = _independent(a) and _independent(b)
    if a.ndim == 1 and not independent:
        return [_bits(1, generator).expand(a.shape[0]).to(a.device)]
    mixed = range(a.ndim if independent else 1)
    return [_bits(a.shape[i], generator).view(-1, *[1] * (a.ndim - 1 - i)).to(a.device) for i in mixed]


def _independent(x: torch.Tensor) -> bool:
    """Whether elements of a row may come from elsewhere: not where all rows are in order, as offsets are, or lengths
    that begin with the largest, nor where no number comes twice in one, as in permutations. What has one dimension is a
    row."""
    if is_inexact(x):
        return True
    rows = (x if x.ndim == 1 else x[:_LOOKED_AT]).reshape(-1, x.shape[-1]).long()
    rising = rows.sort(1).values
    in_order = any(torch.equal(rows, ordered) for ordered in (rising, rising.flip(1)))
    return not in_order and bool((rising[:, 1:] == rising[:, :-1]).any())


def _bits(count: int, generator: torch.Generator) -> torch.Tensor:
    return torch.randint(2, (count,), dtype=torch.bool, generator=generator)
