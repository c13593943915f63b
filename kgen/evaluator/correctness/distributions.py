"""Input distributions: the values and shapes for which a candidate must be right.

A distribution changes what the problem's ``get_inputs()`` returns: the values of floating tensors (:data:`VALUES`),
the batch (by slicing) and the weights (:data:`WEIGHTS`). A new one is one entry in :data:`DISTRIBUTIONS`. A *test
case* is one distribution in one mode.
"""

import random
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import sha256
from typing import Any, Callable, Collection, Iterable, Iterator, Mapping, Sequence

import torch

from kgen.evaluator.runtime.arena import is_inexact, leaves, map_tensors, tensors

SCALED, NON_FINITE, ALIKE = "scaled", "non-finite", "alike"  #: entries of VALUES that other code asks about
FULL, REDUCED = 0, -1  #: batches: as the problem has it; fewer rows where the model takes any batch
_MOST_DRAWN, _MOST_ROWS_DRAWN = 63, 2048  #: rows of the small and of the large drawn batches
#: Factors and shifts of the rows in SCALED: both signs, zeros, sizes at which activations bend, vanish and overflow.
#: Some rows have a mean that holds almost everything. A shift is in units of the mean magnitude.
_FACTORS = (1.0, 4.0, -1.0, 100.0, 0.01, -30.0, 1.0, 0.0)
_SHIFTS = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 30.0, 0.0)
_FEW = 4096  #: elements that estimate the magnitude of a tensor
_LOOKED_AT = 16  #: entries of the first index that show whether integers depend on each other
_TOGETHER, _ROWS_BESIDE = 32, 16  #: neighbouring outliers in a row; one row in 16 has them
_OTHERS = 6  #: rows that NON_FINITE changes
_APART = 2.0**-7  #: relative distance between rows that are almost equal
HALF = frozenset({torch.float16, torch.bfloat16})
# Bound before a candidate is loaded: a candidate may patch torch, and would see how contents are mixed.
_copy, _detach = torch.Tensor.copy_, torch.Tensor.detach
_Generator, _equal, _logical_xor = torch.Generator, torch.equal, torch.logical_xor
_randint, _randperm, _where, _narrow = torch.randint, torch.randperm, torch.where, torch.Tensor.narrow
_PART = 1 << 26  #: elements that are mixed at once


@dataclass(frozen=True)
class Distribution:
    """One input distribution. ``batch`` is a number of rows, :data:`FULL` or :data:`REDUCED`. Own candidates are tried
    on those with ``own``, foreign candidates on all. ``purpose`` says in the docs which mistakes it finds."""

    name: str
    values: str = "given"
    weights: str = "drawn"
    batch: int = REDUCED
    own: bool = False
    purpose: str = ""

    @property
    def shape_only(self) -> bool:
        """Whether only the batch differs from the problem's own inputs."""
        return self.batch > 0


#: In the order in which they are tried: those that find mistakes most often come first.
DISTRIBUTIONS = (
    Distribution("as given", batch=FULL, own=True, purpose="the problem's own inputs, all rows"),
    Distribution("other weights", weights="rolled", own=True, purpose="stale folded weights"),
    # The weights are those of the case before: results remembered by a symmetric function of the input are wrong.
    Distribution("sign flipped", values="flipped", weights="rolled", purpose="wrong branches, remembered results"),
    Distribution(
        "all rows scaled",
        values=SCALED,
        weights="rolled",
        batch=FULL,
        own=True,
        purpose="other signs and sizes, zeros and shifts in all rows: wrong code for large batches",
    ),
    Distribution(
        "NaN and infinities",
        values=NON_FINITE,
        batch=FULL,
        own=True,
        purpose="non-finite values that are lost, spread or of another kind",
    ),
    Distribution(
        "all positive",
        values="positive",
        weights="positive",
        own=True,
        purpose="truncation, which adds up without cancellation",
    ),
    Distribution("zeros", values="zeros", own=True, purpose="division by zero, saturation"),
    Distribution("x 4", values="fourfold", purpose="approximations where activations bend"),
    Distribution("x 1e2", values="large", own=True, purpose="overflow, saturation"),
    Distribution(
        "rows of different size",
        values="rows",
        own=True,
        purpose="scaling of whole tensors, an epsilon in the wrong place",
    ),
    Distribution("x 1e-2", values="small", purpose="underflow, absolute thresholds"),
    Distribution("sparse outliers", values="outliers", purpose="reduced precision, a top-k taken block by block"),
    Distribution("shifted by 100 std", values="shifted", own=True, purpose="cancellation in variances"),
    Distribution("rows all but equal", values=ALIKE, purpose="distances computed as differences of squares"),
    Distribution("batch 1", batch=1, own=True, purpose="sizes baked in"),
    Distribution("batch 7", batch=7, purpose="odd batches"),
    Distribution("batch 63", batch=63, purpose="one row less than a tile"),
    Distribution("batch 65", batch=65, own=True, purpose="one row more than a tile"),
)


def drawn_batches(secret: int, rows: int) -> list[Distribution]:
    """Batches below ``rows`` that are drawn at random: the remainders of eight that the fixed batches lack. The last
    has at least two thirds of ``rows`` (2048 at most)."""
    generator, small, large = random.Random(secret), min(rows, _MOST_DRAWN), min(rows, _MOST_ROWS_DRAWN)
    small_batches = (range(2, small, 4), range(4, small, 8), range(8, small, 16))
    large_batches = [n for n in range(2 * large // 3, large) if n % 8 in (3, 5)]
    found = [
        Distribution(f"batch {n}, drawn", batch=n, purpose="edges of tiles")
        for n in (generator.choice(given) for given in small_batches if given)
    ]
    if large_batches:
        n = generator.choice(large_batches)
        found.append(Distribution(f"batch {n}, drawn", batch=n, own=True, purpose="whole tiles and a part of one"))
    return found


def _scaled(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Multiply and shift row after row by the factors and shifts above, starting at a drawn one."""
    if not x.ndim:
        return x
    few = x[: -(-_FEW * x.shape[0] // x.numel())].flatten()[:_FEW].cpu()  # a reduction on a GPU loads kernels: 30 ms
    shifts, first = torch.tensor(_SHIFTS) * few.abs().mean(), int(_randint(len(_FACTORS), (1,), generator=generator))

    def of_rows(values: torch.Tensor) -> torch.Tensor:
        every = values.roll(first).repeat(-(-x.shape[0] // len(values)))[: x.shape[0]]
        return every.view(-1, *[1] * (x.ndim - 1)).to(x.device)

    return x * of_rows(torch.tensor(_FACTORS)) + of_rows(shifts)


def _rows(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Scale rows by 1e-7 to 1e3: an epsilon under a root dominates in some and vanishes in others."""
    if x.ndim < 1:
        return x
    exponent = torch.rand(x.shape[:1], generator=generator) * 10 - 7
    return x * (10.0**exponent).view(-1, *[1] * (x.ndim - 1)).to(x.device)


def _outliers(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Make one element in a thousand large, and in a few rows a run of neighbours."""
    large = torch.rand(x.shape, generator=generator) < 1e-3
    if x.ndim > 1:
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        chosen = torch.randperm(rows, generator=generator)[: -(-rows // _ROWS_BESIDE)]
        first = torch.randint(columns, (len(chosen), 1), generator=generator)
        together = min(_TOGETHER, columns // 4)
        large.view(rows, columns)[chosen] |= (torch.arange(columns) - first) % columns < together
    return torch.where(large.to(x.device), x * 100, x)


def _non_finite(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Put NaN, infinity and minus infinity into one place each, in drawn rows. Three more rows change: one is large,
    one shifted, and one repeats the row before it but for an element."""
    flat = x.clone(memory_format=torch.contiguous_format).view(-1, x.shape[-1] if x.ndim > 1 else 1)
    rows, columns = flat.shape
    drawn = _randperm(rows, generator=generator).tolist()
    if rows > _OTHERS:
        large, shifted = drawn[3:5]
        alike = next(row for row in drawn[5:] if row - 1 not in drawn[:5] or row == drawn[-1])
        flat[alike] = flat[alike - 1]
        flat[alike, int(_randint(columns, (1,), generator=generator))] *= -2
        flat[shifted] += 100 * flat[shifted, :_FEW].cpu().abs().mean().item()
        flat[large] *= 100
    for index, value in enumerate((float("nan"), float("inf"), float("-inf"))):
        flat[drawn[index % rows], int(_randint(columns, (1,), generator=generator))] = value
    return flat.view(x.shape)


#: How each entry changes a floating input.
VALUES: Mapping[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "given": lambda x, generator: x,
    "small": lambda x, generator: x * 1e-2,
    "fourfold": lambda x, generator: x * 4,
    "large": lambda x, generator: x * 1e2,
    "zeros": lambda x, generator: torch.zeros_like(x),
    "flipped": lambda x, generator: -x,
    "positive": lambda x, generator: x.abs(),
    "outliers": _outliers,
    "rows": _rows,
    SCALED: _scaled,
    "shifted": lambda x, generator: x + 100 * (x.std() if x.numel() > 1 else 1),
    NON_FINITE: _non_finite,
}


def change_inputs(inputs: Sequence[Any], how: str, seed: int, weights: Collection[torch.Tensor] = ()) -> list[Any]:
    """``inputs`` with the entry ``how`` of :data:`VALUES` applied to floating tensors; :data:`ALIKE` uses ``weights``
    too. Strides and dtypes are kept, and finite values stay within the dtype's range."""
    generator = _Generator().manual_seed(seed)
    change = _alike(weights) if how == ALIKE else VALUES[how]

    def one(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point() or not x.numel():
            return x
        changed = change(x.float() if x.dtype in HALF else x, generator)
        if x.dtype in HALF:
            most = torch.finfo(x.dtype).max
            changed = torch.where(changed.isinf(), changed, changed.clamp(-most, most)).to(x.dtype)
        return changed if changed.stride() == x.stride() else torch.empty_like(x).copy_(changed)

    return map_tensors(list(inputs), lambda x: _by_parts(one, x))


def _by_parts(change: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """``x`` with the change; complex numbers as pairs of real ones."""
    return torch.view_as_complex(change(torch.view_as_real(x.resolve_conj()))) if x.is_complex() else change(x)


def _alike(weights: Collection[torch.Tensor]) -> Callable[[torch.Tensor, torch.Generator], torch.Tensor]:
    """A change that makes every other row almost equal to a drawn row. That row is of the tensor itself, of an earlier
    input, or of a matrix of ``weights`` (rows or columns)."""
    matrices = [x for x in weights if x.is_floating_point() and x.ndim > 1]
    others = [*matrices, *(x.T for x in matrices if x.ndim == 2)]

    def change(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if x.ndim < 2:
            return x
        rows = x.reshape(-1, x.shape[-1])
        changed, order = rows.clone(), _randperm(len(rows), generator=generator)
        drawn, fitting = (
            order[::2],
            [y for y in (rows[order[1::2]], *others) if y.shape[-1] == x.shape[-1] and y.numel()],
        )
        for number, y in enumerate(fitting):
            mine, theirs = drawn[number :: len(fitting)], y if y.ndim == 2 else y.reshape(-1, y.shape[-1])
            chosen = theirs[_randint(len(theirs), mine.shape, generator=generator).to(y.device)].to(x)
            changed[mine] = chosen * (1 + _APART * (torch.rand(chosen.shape, generator=generator) - 0.5).to(x.device))
        others.append(changed)
        return changed.view(x.shape)

    return change


#: How each entry changes a floating tensor of the state dict; the worker changes its copy in the same way.
WEIGHTS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "drawn": lambda x: x,
    "rolled": lambda x: torch.roll(x, 1, 0) if x.ndim and x.shape[0] > 1 else x * 1.25,
    "positive": lambda x: x.abs(),
}


def change_weights(state: Mapping[str, torch.Tensor], how: str, ties: Mapping[str, str]) -> dict[str, torch.Tensor]:
    """``state`` changed by an entry of :data:`WEIGHTS`; ``ties`` maps a parameter's second name to its first."""
    found = {
        name: _by_parts(WEIGHTS[how], value) if is_inexact(value) and name not in ties else value
        for name, value in state.items()
    }
    return found | {name: found[other] for name, other in ties.items()}


def batch_size(inputs: Sequence[Any]) -> int:
    """Rows of the first tensor, taken for the batch; 0 without one."""
    return next((x.shape[0] for x in tensors(list(inputs)) if x.ndim), 0)


def slice_batch(inputs: Sequence[Any], rows: int, first: int = 0) -> list[Any]:
    """``rows`` rows, from the row ``first`` on, of each tensor whose first dimension is the batch."""
    batch = batch_size(inputs)
    return map_tensors(list(inputs), lambda x: x[first : first + rows] if x.ndim and len(x) == batch else x)


def joined(parts: Iterable[Any], rows: int) -> Any:
    """Values of one structure whose tensors are joined along the batch, which has ``rows``."""
    whole, first = None, 0
    for part in parts:
        if whole is None:
            whole = map_tensors(part, lambda x: x.new_empty((rows, *x.shape[1:])))
        for all_rows, some in zip(tensors(whole), tensors(part)):
            all_rows[first : first + len(some)] = some
        first += batch_size([part])
    return whole


def seed_of(key: int) -> int:
    """The seed of the timed call with ``key``, which it does not reveal: the key mixes the contents."""
    return int.from_bytes(sha256(str(key).encode()).digest()[:6], "little")


@dataclass(frozen=True)
class Mixture:
    """New contents of one tensor. The bits are drawn on the CPU, so that every device gets the same."""

    buffer: torch.Tensor  # at least one dimension
    bits: Sequence[torch.Tensor]  # bool, one tensor for each index; they broadcast
    first: torch.Tensor  # like the buffer: taken where the exclusive or of the bits is true
    second: torch.Tensor  # taken elsewhere; with fewer rows, they come again

    def pinned(self) -> "Mixture":
        """The same with bits in pinned memory, which a GPU copies in stream order."""
        return replace(self, bits=[bit.contiguous().pin_memory() for bit in self.bits])

    def fill(self) -> None:
        for part, contents in self.parts():
            _copy(part, contents)

    def parts(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Rows of the buffer, some at a time, with their contents."""
        count = len(self.first)
        for first, rows, contents in self._made(0, count):
            yield self.buffer if rows == count else _narrow(self.buffer, 0, first, rows), contents

    def rows(self, first: int, count: int) -> torch.Tensor:
        """The contents of ``count`` rows from the row ``first`` on."""
        found = [contents for *_, contents in self._made(first, count)]
        return found[0] if len(found) == 1 else torch.cat(found)

    def _made(self, first: int, count: int) -> Iterator[tuple[int, int, torch.Tensor]]:
        """The contents of these rows, some at a time, with the first row and their number."""
        bits, *others = (bit.to(self.buffer.device, non_blocking=True) for bit in self.bits)
        whole, again = len(self.first), len(self.second)
        most, end = max(1, _PART * whole // self.first.numel()), first + count
        while first < end:
            rows = min(most, end - first, again - first % again)
            some = bits, self.first, self.second
            if rows < whole:
                some = tuple(_narrow(x, 0, start, rows) for x, start in zip(some, (first, first, first % again)))
            yield first, rows, _where(reduce(_logical_xor, others, some[0]), *some[1:])
            first += rows


def is_mixable(x: torch.Tensor) -> bool:
    """Whether elements of a row are independent; sorted integers (offsets, lengths) and permutations are not."""
    if is_inexact(x):
        return True
    rows = (x if x.ndim == 1 else x[:_LOOKED_AT]).reshape(-1, x.shape[-1]).long()
    rising = rows.sort(1).values
    is_sorted = any(_equal(rows, ordered) for ordered in (rising, rising.flip(1)))
    return not is_sorted and bool((rising[:, 1:] == rising[:, :-1]).any())


class Mixable:
    """:func:`is_mixable` of tensors that stay, found once for each: it waits for the device."""

    def __init__(self) -> None:
        self._known: dict[Any, bool] = {}

    def __call__(self, x: torch.Tensor) -> bool:
        where = x.data_ptr(), x.shape, x.dtype
        if where not in self._known:
            self._known[where] = is_mixable(x)
        return self._known[where]


def mixtures(
    buffers: Any, pool: Sequence[Any], key: int, is_mixable: Callable[[torch.Tensor], bool] = is_mixable
) -> Iterator[Mixture]:
    """New contents of ``buffers``: elements of two input sets of ``pool``, mixed as ``key`` says. A bit for each index,
    combined by exclusive or, chooses the set: no row and no column comes twice. Integers that depend on each other
    along a row are chosen by the row. ``is_mixable`` tells a tensor of the pool where they do not, with at least one
    dimension."""
    generator = _Generator().manual_seed(key)
    first, second = (pool[int(i)] for i in _randperm(len(pool), generator=generator)[:2])
    if batch_size(first) != batch_size(pool[0]):
        first, second = second, first
    for (_, buffer), (_, a), (_, b) in zip(leaves(buffers), leaves(first), leaves(second)):
        if isinstance(buffer, torch.Tensor) and 0 not in buffer.shape:
            # Detached: a candidate may have marked its input as one to differentiate by.
            buffer, a, b = (x if x.ndim else x[None] for x in (_detach(buffer), a, b))
            yield Mixture(buffer, _choices(a, is_mixable(a) and is_mixable(b), generator), a, b)


def mixed(sets: Sequence[Any], key: int) -> Any:
    """A new input set, mixed of ``sets`` as ``key`` says."""
    made = map_tensors(sets[0], torch.empty_like)
    for content in mixtures(made, sets, key):
        content.fill()
    return made


def _choices(x: torch.Tensor, elementwise: bool, generator: torch.Generator) -> list[torch.Tensor]:
    """Random bits for each index; for the first index alone where elements may not be mixed within a row."""
    if x.ndim == 1 and not elementwise:
        return [_bits(1, generator).expand(x.shape[0])]
    mixed = range(x.ndim if elementwise else 1)
    return [_bits(x.shape[i], generator).view(-1, *[1] * (x.ndim - 1 - i)) for i in mixed]


def _bits(count: int, generator: torch.Generator) -> torch.Tensor:
    return _randint(2, (count,), dtype=torch.bool, generator=generator)
