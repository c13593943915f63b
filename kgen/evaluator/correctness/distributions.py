"""Regimes: the values and shapes under which a candidate must be right.

A regime changes the inputs that the problem's ``get_inputs()`` makes: the values of its floating tensors by one entry
of :data:`VALUES`, its batch by slicing, and the weights by one entry of :data:`WEIGHTS`. A new regime is one entry in
:data:`REGIMES`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Callable, Collection, Iterator, Mapping, Sequence

import torch

from kgen.evaluator.protocol import ALL_ROWS, NON_FINITE, NON_FINITE_ROWS, SCALED
from kgen.evaluator.runtime.arena import is_inexact, leaves, map_tensors, tensors

ALIKE = "alike"  #: the values of one tensor that are made of another's
FULL, REDUCED = 0, -1  #: special batches: the problem's own; a smaller one where the batch is free
REDUCED_ROWS = {"cpu": 64, "cuda": 256}
_MOST_DRAWN, _MOST_ROWS_DRAWN = 63, 2048
#: What :data:`SCALED` multiplies row after row by, and adds in sizes of its elements: signs, sizes at which activations
#: bend, vanish and overflow, rows of zeros, and rows of which a mean takes all that counts.
_FACTORS = (1.0, 4.0, -1.0, 100.0, 0.01, -30.0, 1.0, 0.0)
_SHIFTS = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 30.0, 0.0)
_FEW = 4096  #: elements that tell how large those of a tensor are
_DRAWN = 16  #: elements, of which one is changed
_LOOKED_AT = 16  #: entries of the first index, to see whether integers depend on each other
_TOGETHER, _ROWS_BESIDE = 32, 16  #: outliers that lie together in a row; and one in so many rows has them
_OTHERS = 6  #: rows that are others where some are not finite
_FEW_IN_A_ROW = 64  #: elements, of which the sets of a pool make few different rows
_APART = 2.0**-7  #: how far apart elements are, relative to what they are, of rows that are all but equal
_LOW_BITS = 4095  #: of a float32 that are drawn anew then
_COUNTED = 5  #: steps that a counter has counted more in other weights; odd, for those that do something every other time
_copy, _detach = torch.Tensor.copy_, torch.Tensor.detach  # bound here: an input may be given methods of that name
_NONE: Mapping[str, str] = MappingProxyType({})
_Random, _sha256 = random.Random, sha256
#: And what mixes contents is bound: who lends torch another function for a moment would be handed them.
_Generator, _arange, _equal, _logical_xor = torch.Generator, torch.arange, torch.equal, torch.logical_xor
_randint, _randperm, _where = torch.randint, torch.randperm, torch.where


@dataclass(frozen=True)
class Regime:
    """One way to try a candidate. ``batch`` is a number of rows, :data:`FULL` or :data:`REDUCED`; with ``like``, the name
    of a regime, its batch, weights and inputs are that one's, and ``values`` alone tells them apart."""

    name: str
    values: str = "given"
    weights: str = "drawn"
    batch: int = REDUCED
    like: str = ""

    @property
    def shape_only(self) -> bool:
        """Whether the inputs differ in the batch alone from what the problem gives."""
        return self.batch > 0


#: In the order in which they are tried: those that most often find something wrong come first.
REGIMES = (
    Regime("as given", batch=FULL),
    Regime("other weights", weights="rolled"),
    # Where vectors are changed back, and then matrices are changed, everything else stays: half of a fold may be stale.
    Regime("other vectors", weights="vectors"),
    Regime("other matrices", weights="matrices"),
    # The call before, but for signs, and then for one element: who knows an input by its squares, or by a sample, is wrong.
    Regime("sign flipped", values="flipped", like="other matrices"),
    Regime("one element changed", values="flipped but one", like="other matrices"),
    # In full again: what serves large batches alone may look at some elements too, or at all of the vectors or matrices.
    Regime(ALL_ROWS, values=SCALED, weights="matrices", batch=FULL),
    Regime(NON_FINITE_ROWS, values=NON_FINITE, weights="matrices and vectors", batch=FULL),
    Regime("all positive", values="positive", weights="positive"),
    Regime("zeros", values="zeros"),  # where matrices count for nothing
    # From here on one tensor of the weights after the other changes, first in one element: a fold may look at some of them
    # only, or at all of one and at a few elements of another.
    Regime("x 4", values="fourfold", weights="one"),
    Regime("x 1e2", values="large", weights="one"),
    Regime("rows of different size", values="rows", weights="one"),
    Regime("x 1e-2", values="small", weights="one"),
    Regime("sparse outliers", values="outliers", weights="one"),
    Regime("shifted by 100 std", values="shifted", weights="one"),
    Regime("rows all but equal", values=ALIKE, weights="one"),
    Regime("batch 1", weights="one", batch=1),
    Regime("batch 7", weights="one", batch=7),
    Regime("batch 63", weights="one", batch=63),
    Regime("batch 65", weights="one", batch=65),
)


def drawn_batches(secret: int, rows: int) -> list[Regime]:
    """Batches below ``rows`` that nobody can know beforehand, with the remainders of eight that no fixed one has: two
    or six, four, zero (but an odd multiple of eight), three or five. The last is larger than tiles of up to 1024 rows,
    where ``rows`` allows it: it has whole ones and a part of one."""
    generator, small, large = random.Random(secret), min(rows, _MOST_DRAWN), min(rows, _MOST_ROWS_DRAWN)
    choices = (
        range(2, small, 4), range(4, small, 8), range(8, small, 16),
        [n for n in range(2 * large // 3, large) if n % 8 in (3, 5)],
    )
    drawn = [generator.choice(given) for given in choices if given]
    return [Regime(f"batch {n}, drawn", weights="one", batch=n) for n in drawn]


#: More than there are regimes in which one tensor of the weights after the other changes.
STEPS = 1 << 8

#: What KernelBench's own check corresponds to.
KERNELBENCH_REGIMES = REGIMES[:2]


def pattern(regime: Regime, regimes: Sequence[Regime]) -> Regime:
    """The one of ``regimes`` that has the batch, weights and inputs of ``regime``: itself, where it is like no other."""
    return next(other for other in regimes if other.name == (regime.like or regime.name))


def _scaled(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rows times one factor after the other, from one that is drawn on, and one shift after the other added."""
    if not x.ndim or not x.numel():
        return x
    few = x[: -(-_FEW * x.shape[0] // x.numel())].flatten()[:_FEW].cpu()  # a reduction on a GPU would load kernels: 30 ms
    shifts, first = torch.tensor(_SHIFTS) * few.abs().mean(), int(_randint(len(_FACTORS), (1,), generator=generator))

    def of_rows(values: torch.Tensor) -> torch.Tensor:
        every = values.roll(first).repeat(-(-x.shape[0] // len(values)))[: x.shape[0]]
        return every.view(-1, *[1] * (x.ndim - 1)).to(x.device)

    return x * of_rows(torch.tensor(_FACTORS)) + of_rows(shifts)


def _rows(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Rows of sizes at which what is added under a root counts for nothing, for all, and for something in between."""
    if x.ndim < 1:
        return x
    exponent = torch.rand(x.shape[:1], generator=generator) * 10 - 7
    return x * (10.0**exponent).view(-1, *[1] * (x.ndim - 1))


def _outliers(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One element in a thousand is large; and in a few rows some that lie together are, so that who takes the same number
    of candidates from each block of a row leaves some out."""
    large = torch.rand(x.shape, generator=generator) < 1e-3
    if x.ndim > 1 and x.numel():
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        chosen = torch.randperm(rows, generator=generator)[: -(-rows // _ROWS_BESIDE)]
        first = torch.randint(columns, (len(chosen), 1), generator=generator)
        together = min(_TOGETHER, columns // 4)
        large.view(rows, columns)[chosen] |= (torch.arange(columns) - first) % columns < together
    return torch.where(large, x * 100, x)


def _one_larger(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One element a hundred times larger, the largest of a few that are drawn: so what is zero stays so."""
    if not x.numel():
        return x
    changed = x.clone(memory_format=torch.contiguous_format)
    flat = changed.view(-1)
    few = torch.randint(x.numel(), (_DRAWN,), generator=generator)
    flat[few[flat[few].abs().argmax()]] *= 100
    return changed


def _shifted(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return x + 100 * x.std() if x.numel() > 1 else x + 100


def _non_finite(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """NaN, infinity and minus infinity, each in one place of one row, along the last dimension; and a row that is large, one
    that is shifted and one that is the row before it but for an element. Which rows these are is drawn: a look at some does
    not find them."""
    if not x.numel():
        return x
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


#: What each regime does to a floating input.
VALUES: Mapping[str, Callable[[torch.Tensor, torch.Generator], torch.Tensor]] = {
    "given": lambda x, generator: x,
    "small": lambda x, generator: x * 1e-2,
    "fourfold": lambda x, generator: x * 4,  # where activations bend and saturate, of inputs of about one
    "large": lambda x, generator: x * 1e2,
    "zeros": lambda x, generator: torch.zeros_like(x),
    "flipped": lambda x, generator: -x,
    "flipped but one": lambda x, generator: _one_larger(-x, generator),
    "positive": lambda x, generator: x.abs(),
    "outliers": _outliers,
    "rows": _rows,
    SCALED: _scaled,
    "shifted": _shifted,
    NON_FINITE: _non_finite,
}


def _rolled(x: torch.Tensor) -> torch.Tensor:
    return torch.roll(x, 1, 0) if x.ndim and x.shape[0] > 1 else x * 1.25


def _changed(x: torch.Tensor, seed: str, count: int = 1) -> torch.Tensor:
    """Some elements, which are drawn, larger by one and a half times themselves, or the largest of a few in the middle if
    that is more: who looks at some elements, to see whether others changed, sees nothing, and none becomes zero that was
    not. Infinities, as in a mask, stay what they are, and none is added. (The few are looked at on the CPU: a reduction
    on a GPU would load kernels, which takes a process some 30 ms.)"""
    if not x.numel() or not count:
        return x
    changed = x.clone(memory_format=torch.contiguous_format)
    flat, middle, generator = changed.view(-1), x.numel() // 2, _Random(seed)
    most = _most(flat[max(0, middle - _FEW // 2) : middle + _FEW // 2].cpu()) or _most(flat) or 1.0
    for place in {generator.randrange(x.numel()) for _ in range(count)}:
        old = flat[place : place + 1].cpu()
        flat[place : place + 1].copy_(old + 1.5 * max(most, _most(old)))
    return changed


def _most(x: torch.Tensor) -> float:
    """The largest of the absolute values that are finite; zero without any."""
    return float(x.nan_to_num(0.0, 0.0, 0.0).abs().max())


def _changed_again(x: torch.Tensor, times: int, seed: str) -> torch.Tensor:
    """``x`` when it has changed some times: a vector in one element more each time, since who looks at a few of them may
    well see one; all else in one element more and as a whole by turns, since an element may never be used."""
    if x.ndim == 1:
        return _changed(x, seed, times)
    return _changed(_rolled(x) if times % 4 >= 2 else x, seed, (times + 1) // 2)


#: What each regime does to a floating tensor of the state dict, with a seed for what it draws; the worker does the same
#: to its copy. Beside these there is ``one``, of one tensor after the other.
WEIGHTS: Mapping[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "drawn": lambda x, seed: x,
    "rolled": lambda x, seed: _rolled(x),
    "vectors": lambda x, seed: x if x.ndim > 1 else _changed(x, seed),
    "matrices": lambda x, seed: _changed(x, seed) if x.ndim > 1 else x,
    "matrices and vectors": _changed,
    "positive": lambda x, seed: x.abs(),
}


def change_weights(
    state: Mapping[str, torch.Tensor], how: str, number: int = 0, counters: Collection[str] = (),
    ties: Mapping[str, str] = _NONE,
) -> dict[str, torch.Tensor]:
    """``state`` with :data:`WEIGHTS`' entry ``how`` applied to its floating tensors; or, for ``one``, with one of them
    after the other changed again, and all else as it was: ``number`` is a secret, which says in what order and which
    elements, times :data:`STEPS`, and how many changed. Where all are rolled, ``counters`` have counted more. ``ties``
    has names of parameters that have another name, with that one."""
    secret, step = divmod(number, STEPS)
    chosen = sorted(name for name, value in state.items() if value.is_floating_point() and name not in ties)
    if how == "one":
        _Random(secret).shuffle(chosen)
        times = {name: (step - 1 - place) // len(chosen) + 1 for place, name in enumerate(chosen)}
        changed = {name: _changed_again(state[name], n, f"{secret} one {name}") for name, n in times.items()}
    else:
        changed = {name: WEIGHTS[how](state[name], f"{secret} {name}") for name in chosen}
    if how == "rolled":
        changed |= {name: state[name] + _COUNTED for name in counters if name in state}
    found = {name: changed.get(name, value) for name, value in state.items()}
    return found | {name: found[other] for name, other in ties.items()}


def moved_buffers(
    state: Mapping[str, torch.Tensor], key: int, mode: str, counters: Collection[str] = ()
) -> dict[str, torch.Tensor]:
    """``state`` as the buffers of a timed call with ``key`` begin. In train mode, where they change with every call,
    they are others every other time, so that who keeps a copy of them shows."""
    return change_weights(state, "rolled" if key % 2 and mode == "train" else "drawn", counters=counters)


def seed_of(key: int) -> int:
    """The seed of the random numbers of the timed call with ``key``; it does not tell the key, by which contents are
    mixed."""
    return int.from_bytes(_sha256(str(key).encode()).digest()[:6], "little")


def change_inputs(
    inputs: Sequence[Any], how: str, seed: int, weights: Collection[torch.Tensor] = ()
) -> list[Any]:
    """``inputs`` with :data:`VALUES`' entry ``how`` applied to their floating tensors, or :data:`ALIKE`, which takes the
    ``weights`` too."""
    generator = _Generator().manual_seed(seed)
    change = _alike(weights) if how == ALIKE else VALUES[how]

    def one(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():
            return x
        changed = change(x, generator)
        # A problem that gives a non-contiguous input means it: its strides are kept.
        return changed if changed.stride() == x.stride() else torch.empty_like(x).copy_(changed)

    found = map_tensors(list(inputs), one)
    if how == NON_FINITE:
        _pair_infinities(found, generator)
    return found


def _alike(weights: Collection[torch.Tensor]) -> Callable[[torch.Tensor, torch.Generator], torch.Tensor]:
    """What makes every other row of a tensor all but equal to a row, which is drawn, of that tensor itself, of one that it
    was called for before, or of a matrix of ``weights``, rows or columns: their difference is small there, and computed
    by squares it is lost."""
    matrices = [x for x in weights if x.is_floating_point() and x.ndim > 1]
    others = [*matrices, *(x.T for x in matrices if x.ndim == 2)]

    def change(x: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if x.ndim < 2 or not x.numel():
            return x
        rows = x.reshape(-1, x.shape[-1])
        changed, order = rows.clone(), _randperm(len(rows), generator=generator)
        drawn, fitting = order[::2], [y for y in (rows[order[1::2]], *others) if y.shape[-1] == x.shape[-1] and y.numel()]
        for number, y in enumerate(fitting):
            mine, theirs = drawn[number :: len(fitting)], y if y.ndim == 2 else y.reshape(-1, y.shape[-1])
            chosen = theirs[_randint(len(theirs), mine.shape, generator=generator).to(y.device)].to(x)
            changed[mine] = chosen * (1 + _APART * (torch.rand(chosen.shape, generator=generator) - 0.5))
        others.append(changed)
        return changed.view(x.shape)

    return change


def _pair_infinities(inputs: Sequence[Any], generator: torch.Generator) -> None:
    """Have several tensors of one shape be infinite in one place: in the rows where the first of them is, with one sign
    and with both. (Not those of a GPU, which would load kernels to find these: 30 ms.)"""
    shapes: dict[torch.Size, list[torch.Tensor]] = {}
    for x in tensors(list(inputs)):
        if x.is_floating_point() and x.ndim > 1:
            shapes.setdefault(x.shape, []).append(x)
    for first, *others in shapes.values():
        for index in first.isinf().nonzero().tolist() if others and not first.is_cuda else ():
            place = (*index[:-1], int(_randint(first.shape[-1], (1,), generator=generator)))
            first[place] = first[tuple(index)]
            for x in others:
                x[place] = float("inf")


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


def recombine(buffers: Any, pool: Sequence[Any], key: int, values: str = "given") -> None:
    """Fill ``buffers`` with contents that were never there before: elements of two input sets, mixed as ``key`` says.

    Which set an element comes from is the exclusive or of a bit for each of its indices, so that neither a row nor
    a column comes twice, and a result kept for one serves nobody. Where rows have few elements, their low bits are drawn
    anew too. Integers that seem to depend on each other along a row are chosen by the first index alone, and where they
    have but one, all together; those that are not in order then go round by a number drawn for the row.
    ``values`` is an entry of :data:`VALUES` that does the same to an element whatever the others are.
    """
    for mixture in mixtures(buffers, pool, key, values):
        mixture.fill()


@dataclass(frozen=True)
class Mixture:
    """What :func:`recombine` fills a tensor with, before it does. What was drawn is on the CPU: every device gets the same.
    """

    buffer: torch.Tensor  # of a dimension at least
    bits: Sequence[torch.Tensor]  # bool, for each index; they broadcast, those of the last have one dimension
    first: torch.Tensor  # like the buffer: where the exclusive or of these is true
    second: torch.Tensor  # elsewhere
    column: int  # a value of the last index
    low: torch.Tensor | None = None  # int32, like the buffer: other low bits of float32
    added: torch.Tensor | None = None  # int64, to integers, for each row; it broadcasts
    modulus: int = 0  # of what comes of that

    def pinned(self) -> Mixture:
        """The same, from memory that a GPU copies from when it is its turn, without keeping anybody waiting. Raises
        ``RuntimeError`` where there is none."""
        low, added, *bits = (None if x is None else x.contiguous().pin_memory()
                             for x in (self.low, self.added, *self.bits))
        return replace(self, bits=bits, low=low, added=added)

    def fill(self, *, but_a_column: bool = False) -> None:
        """Write all elements; with ``but_a_column``, where the last index is :attr:`column`, from the wrong set."""
        choice = reduce(_logical_xor, map(self._there, self.bits))
        if but_a_column:
            choice = choice ^ (_arange(self.buffer.shape[-1], device=self.buffer.device) == self.column)
        self._write(self.buffer, choice, self.first, self.second, self.low, self.added)

    def fill_column(self) -> None:
        """Write what :meth:`fill` leaves wrong with ``but_a_column``."""
        at = self.column
        choice = reduce(_logical_xor, (self._there(bit[..., at if bit.ndim == 1 else 0]) for bit in self.bits))
        self._write(self.buffer[..., at], choice, self.first[..., at], self.second[..., at],
                    None if self.low is None else self.low[..., at], None if self.added is None else self.added[..., 0])

    def _there(self, drawn: torch.Tensor) -> torch.Tensor:
        return drawn.to(self.buffer.device, non_blocking=True)

    def _write(
        self, buffer: torch.Tensor, choice: torch.Tensor, first: torch.Tensor, second: torch.Tensor,
        low: torch.Tensor | None, added: torch.Tensor | None,
    ) -> None:
        if low is not None:
            bits = self._there(low)
            first, second = _with_low_bits(first, bits), _with_low_bits(second, bits)
        if added is not None:
            number = self._there(added)
            first, second = (((x.long() + number) % self.modulus).to(x.dtype) for x in (first, second))
        _copy(buffer, _where(choice, first, second))


def _with_low_bits(x: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """Float32 with other low bits, but for whole numbers, and for what has none."""
    bare = x.view(torch.int32)
    own = bare & _LOW_BITS
    return _where((own == 0) | (x == x.trunc()), bare, bare - own + bits).view(torch.float32)


def mixtures(buffers: Any, pool: Sequence[Any], key: int, values: str = "given") -> Iterator[Mixture]:
    """What :func:`recombine` fills each tensor of ``buffers`` with."""
    generator = _Generator().manual_seed(key)
    chosen = _randperm(len(pool), generator=generator)[:2]
    first, second = (change_inputs(pool[int(i)], values, key) for i in chosen)
    for (_, buffer), (_, a), (_, b) in zip(leaves(buffers), leaves(first), leaves(second)):
        if isinstance(buffer, torch.Tensor) and 0 not in buffer.shape:
            # Detached, for it may have been marked as something to differentiate by.
            buffer, a, b = (x if x.ndim else x[None] for x in (_detach(buffer), a, b))
            (a_in_order, a_repeats), (b_in_order, b_repeats) = _along_rows(a), _along_rows(b)
            in_order = a_in_order or b_in_order
            independent = not in_order and a_repeats and b_repeats
            bits = _choices(a, independent, generator)
            mixture = Mixture(buffer, bits, a, b, key % buffer.shape[-1])
            if is_inexact(a):
                mixture = _with_other_low_bits(mixture, generator)
            elif not independent and not in_order:
                mixture = _turned(mixture, generator)
            yield mixture


def _choices(x: torch.Tensor, independent: bool, generator: torch.Generator) -> list[torch.Tensor]:
    """A truth value for each value of an index."""
    if x.ndim == 1 and not independent:
        return [_bits(1, generator).expand(x.shape[0])]
    mixed = range(x.ndim if independent else 1)
    return [_bits(x.shape[i], generator).view(-1, *[1] * (x.ndim - 1 - i)) for i in mixed]


def _with_other_low_bits(of: Mixture, generator: torch.Generator) -> Mixture:
    """Float32 tensors whose rows have few elements, with other low bits, the same in both; whole numbers stay, and what
    has no such bits, as masks."""
    x = of.first
    if x.dtype != torch.float32 or x.numel() > _FEW_IN_A_ROW * x.shape[0]:
        return of
    return replace(of, low=_randint(_LOW_BITS + 1, x.shape, generator=generator, dtype=torch.int32))


def _turned(of: Mixture, generator: torch.Generator) -> Mixture:
    """Integers, from zero on, with a number added to each row, the same in both, modulo one more than the largest: what
    was different in a row stays so, and a permutation is one still. What has one dimension is a row."""
    a, b = of.first, of.second
    least, most = min(int(a.min()), int(b.min())), max(int(a.max()), int(b.max()))
    if least < 0 or not most:
        return of
    added = _randint(most + 1, (a.shape[0] if a.ndim > 1 else 1,), generator=generator)
    return replace(of, added=added.view(-1, *[1] * (a.ndim - 1)), modulus=most + 1)


def _along_rows(x: torch.Tensor) -> tuple[bool, bool]:
    """Whether all rows of integers are in order, as offsets are, or lengths that begin with the largest: elements may come
    from nowhere else; and whether numbers come twice in a row, as they do not in permutations, which cannot be mixed. What
    has one dimension is a row."""
    if is_inexact(x):
        return False, True
    rows = (x if x.ndim == 1 else x[:_LOOKED_AT]).reshape(-1, x.shape[-1]).long()
    rising = rows.sort(1).values
    in_order = any(_equal(rows, ordered) for ordered in (rising, rising.flip(1)))
    return in_order, bool((rising[:, 1:] == rising[:, :-1]).any())


def _bits(count: int, generator: torch.Generator) -> torch.Tensor:
    return _randint(2, (count,), dtype=torch.bool, generator=generator)
