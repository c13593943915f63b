"""Decompositions: operators without an entry in the table, as operators that have one.

    smooth_l1_loss(x, y)    sub, abs, lt, square, mul, div, sub, where, mean       PyTorch's own decomposition
    max(x, dim=1)           amax, argmax                                          ours

Capture traces the decomposition of each opaque node on tensors without contents, and keeps it with the node. The
rewrite :func:`kgen.compiler.rewrites.cleanup.decompose` puts it in the node's place. A node is taken whole again where
no template takes one of its parts.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from kgen.compiler.capture.attention import FUSED
from kgen.compiler.capture.resizing import RESIZES
from kgen.compiler.graph.complex_numbers import PAIRED, Pairs, is_paired
from kgen.compiler.graph.einsum import einsum as pairs_of_einsum, equation_of
from kgen.compiler.operators.table import BY_TARGET

if TYPE_CHECKING:
    import torch

MOST_BOUNDARIES = 64  # of buckets; more are searched by halves, as the library does
MOST_TAKEN = 64  # of the largest elements; each is a reduction of its own
MOST_COUNTED = 1 << 24  # elements; a float32 counts no further


def traced(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The graph of an operator's decomposition on fake tensors, one placeholder for each tensor among the arguments.

    Complex numbers among the arguments and results are pairs of real ones there. ``None`` where the operator has no
    decomposition.
    """
    import torch
    import torch.utils._pytree as pytree
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.fx.experimental.proxy_tensor import make_fx

    table, name = _table(), str(target)
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
    if not tensors or not all(isinstance(x, FakeTensor) for x in tensors):
        return None
    run = PAIRED[name] if is_paired(name, leaves) else table.get(target, target)
    if run is target and not (hasattr(target, "_can_decompose") and target._can_decompose()):
        return None
    run = _OWN[name] if name in _OWN else run

    def call(*given: Any) -> Any:
        rest = (Pairs(pairs) if x.is_complex() else pairs for x, pairs in zip(tensors, given))
        inner, named = pytree.tree_unflatten([next(rest) if isinstance(x, torch.Tensor) else x for x in leaves], spec)
        found = run(*inner, **named)
        return tuple(found) if isinstance(found, tuple) else found  # torch.fx calls the class of a named one

    def trace(of: Callable[..., Any]) -> Any:
        given = (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in tensors)
        fused = name in FUSED  # its parts are the operators that are called, as in the program itself
        found = make_fx(of, decomposition_table={} if fused else table, tracing_mode="fake", pre_dispatch=fused)(*given)
        found.graph.eliminate_dead_code()
        return found

    try:
        with tensors[0].fake_mode, torch.no_grad():
            found = trace(call)
            writes = any(getattr(getattr(n.target, "_schema", None), "is_mutable", False) for n in found.graph.nodes)
            return trace(torch.func.functionalize(call)) if writes else found
    except Exception:  # a decomposition may refuse sizes or dtypes in any way: the operator stays whole
        return None


def is_ours(target: Any) -> bool:
    """Whether the operator has a decomposition of ours, which draws no random numbers."""
    return str(target) in _OWN


@lru_cache(maxsize=1)
def _table() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions of what the table of operators lacks, and ours."""
    import torch
    from torch._decomp import core_aten_decompositions

    aten = torch.ops.aten
    found = {op: run for op, run in core_aten_decompositions().items() if str(op) not in BY_TARGET}
    for name, run in _OWN.items():
        _, packet, overload = name.split(".")
        found[getattr(getattr(aten, packet), overload)] = run
    return found


# Our own: in ATen's operators, since each is traced again. Returning NotImplemented leaves a call as it is.


def _dims(x: torch.Tensor, dim: Any) -> list[int]:
    dims = range(x.dim()) if dim is None or dim == [] else dim if isinstance(dim, (list, tuple)) else [dim]
    return [d % max(x.dim(), 1) for d in dims]


def _count(x: torch.Tensor, dims: Sequence[int]) -> int:
    return math.prod(x.shape[d] for d in dims)


def _extreme(word: str) -> Callable[..., Any]:
    def run(x: torch.Tensor, dim: int, keepdim: bool = False) -> Any:
        import torch

        at = getattr(torch.ops.aten, f"arg{word}").default(x, dim, keepdim)
        return getattr(torch.ops.aten, f"a{word}").default(x, [dim], keepdim), at

    return run


def _of_all(word: str) -> Callable[..., Any]:
    return lambda x: _aten(f"a{word}", x, list(range(x.dim())))


def _aten(name: str, *args: Any) -> Any:
    import torch

    return getattr(torch.ops.aten, name).default(*args)


def _variance_mean(x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    import torch

    return torch.ops.aten.var.correction(x, dim, correction=correction, keepdim=keepdim), x.mean(_dims(x, dim), keepdim)


def _holds(word: str) -> Callable[..., Any]:
    def run(x: torch.Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        import torch

        ones = torch.where(x if x.dtype == torch.bool else x != 0, 1.0, 0.0)
        return _aten(word, ones, _dims(x, dim), keepdim) != 0

    return run


def _largest(x: torch.Tensor) -> int:
    """The largest magnitude of an integer or boolean of at most 16 bits, which float32 holds exactly; 0 of other
    dtypes."""
    import torch

    return {torch.bool: 1, torch.uint8: 255, torch.int8: 128, torch.int16: 1 << 15}.get(x.dtype, 0)


def _sum(x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    import torch

    dims, largest = _dims(x, dim), _largest(x)
    if not largest or dtype not in (None, torch.int64) or largest * _count(x, dims) > MOST_COUNTED:
        return NotImplemented
    return (
        torch.where(x, 1.0, 0.0).sum(dims, keepdim).to(torch.int64)
        if x.dtype == torch.bool
        else x.to(torch.float32).sum(dims, keepdim).to(torch.int64)
    )


def _of_integers(name: str, same: bool) -> Callable[..., Any]:
    """A reduction of small integers as one of float32; a result of the ``same`` dtype is turned back."""

    def run(x: torch.Tensor, *args: Any, **more: Any) -> Any:
        import torch

        if not _largest(x):
            return NotImplemented
        found = getattr(torch.ops.aten, name).default(x.to(torch.float32), *args, **more)
        return found.to(x.dtype) if same else found

    return run


def _place_of(word: str) -> Callable[..., Any]:
    """The first place of an extreme: of small integers as in float32, of others the least place that holds it."""
    of_small = _of_integers(f"arg{word}", False)

    def run(x: torch.Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        import torch

        if x.dtype not in (torch.int32, torch.int64) or (dim is None and keepdim) or not x.dim():
            return of_small(x, dim, keepdim)
        x, dim = (x.reshape(-1), 0) if dim is None else (x, dim % x.dim())
        places = torch.arange(x.shape[dim], device=x.device).reshape([-1 if d == dim else 1 for d in range(x.dim())])
        return _aten("amin", torch.where(x == _aten(f"a{word}", x, [dim], True), places, x.shape[dim]), [dim], keepdim)

    return run


def _vector_norm(x: torch.Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if dtype is not None and dtype != x.dtype:
        return _aten("linalg_vector_norm", x.to(dtype), ord, dim, keepdim)
    if ord == 2 or not x.is_floating_point():
        return NotImplemented
    dims = _dims(x, dim)
    if math.isinf(ord):
        return _aten("amax" if ord > 0 else "amin", x.abs(), dims, keepdim)
    if ord == 0:
        return (x != 0).to(x.dtype).sum(dims, keepdim)
    return x.abs().sum(dims, keepdim) if ord == 1 else (x.abs() ** ord).sum(dims, keepdim) ** (1.0 / ord)


def _topk(x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The largest keys, one after the other. A key is an element's bits in its order, with its place behind: no two are
    equal.

    Of equal elements, the first counts; NaN counts as the largest.
    """
    import torch

    if not x.is_floating_point() or x.dtype == torch.float64 or not x.dim() or not 0 < k <= MOST_TAKEN:
        return NotImplemented
    dim %= x.dim()
    last = x.shape[dim] - 1
    places = torch.arange(last + 1, device=x.device).reshape([-1 if d == dim else 1 for d in range(x.dim())])
    bits = x.to(torch.float32).view(torch.int32).to(torch.int64)
    order = torch.where(x != x, 0x7FFFFFFE, torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits))
    keys = (order if largest else -1 - order) * (1 << 32) + (last - places)
    found = [_aten("amax", keys, [dim], True)]
    while len(found) < k:
        found.append(_aten("amax", torch.where(keys < found[-1], keys, 1 - (1 << 63)), [dim], True))
    at = last - (torch.cat(found, dim) & 0xFFFFFFFF)
    return _aten("gather", x, dim, at), at


def _bucketize(x: torch.Tensor, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False) -> Any:
    """The number of boundaries before each value, of few; NaN is behind all of them."""
    import torch

    if boundaries.numel() > MOST_BOUNDARIES or x.dtype != boundaries.dtype or not x.is_floating_point():
        return NotImplemented
    behind = (boundaries > x.unsqueeze(-1)) if right else (boundaries >= x.unsqueeze(-1))
    return torch.where(behind, 0.0, 1.0).sum([-1]).to(torch.int32 if out_int32 else torch.int64)


def _split(x: torch.Tensor, size: int, dim: int = 0) -> Any:
    rest = x.shape[dim] % size if size else 0
    return _split_with_sizes(x, [size] * (x.shape[dim] // size if size else 1) + ([rest] if rest else []), dim)


def _split_with_sizes(x: torch.Tensor, sizes: Sequence[int], dim: int = 0) -> Any:
    import torch

    ends = list(itertools.accumulate(sizes))
    return [torch.ops.aten.slice.Tensor(x, dim, end - size, end) for size, end in zip(sizes, ends)]


def _roll(x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> Any:
    return NotImplemented if dims else _aten("roll", x.reshape(-1), shifts, [0]).reshape(x.shape)


def _scatter_mean(
    x: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    import torch

    if reduce != "mean" or not include_self or not x.is_floating_point():
        return NotImplemented
    total = _aten("scatter_add", x, dim, index, src)
    return total / _aten("scatter_add", torch.ones_like(x), dim, index, torch.ones_like(src))


def _einsum(equation: str, tensors: Sequence[torch.Tensor], *, path: Any = None) -> Any:
    import torch

    found = equation_of(equation, [tensor.shape for tensor in tensors])
    if found is None or not all(tensor.is_floating_point() for tensor in tensors):
        return torch.ops.aten.einsum.default(equation, tensors, path=path)
    return pairs_of_einsum(found, tensors, _Aten())


class _Aten:
    """Products of matrices as ATen's operators."""

    def linear(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.ops.aten.linear.default(x, w)

    def bmm(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.ops.aten.bmm.default(x, y)


def _affine_grid(theta: torch.Tensor, size: Sequence[int], align_corners: bool) -> Any:
    """Each coordinate as a sum of coordinates from -1 to 1, of which the last belongs to the first dimension."""
    import torch

    rank, found = len(size) - 2, None
    for at, extent in enumerate(reversed(size[2:])):
        line = torch.linspace(-1.0, 1.0, extent, dtype=theta.dtype, device=theta.device)
        line = line if align_corners else line * ((extent - 1) / extent)
        column = theta[:, :, at].reshape(-1, *(1,) * rank, rank)
        part = column * line.reshape(*(-1 if d == rank - 1 - at else 1 for d in range(rank)), 1)
        found = part if found is None else found + part
    return found + theta[:, :, rank].reshape(-1, *(1,) * rank, rank)


def _one_hot(x: torch.Tensor, num_classes: int = -1) -> Any:
    import torch

    if num_classes < 0:
        return torch.ops.aten.one_hot.default(x, num_classes)
    return (x.unsqueeze(-1) == torch.arange(num_classes, device=x.device)).to(torch.int64)


def _cross_entropy(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: Any = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """One term for each target, of the logarithm at its class and of the logarithms' sum over all classes, which are
    not stored."""
    import torch

    if not label_smoothing or target.is_floating_point() or x.dim() < 2:
        return torch.ops.aten.cross_entropy_loss.default(x, target, weight, reduction, ignore_index, label_smoothing)
    counts = target != ignore_index
    at = torch.where(counts, target, 0)
    own = x.gather(1, at.unsqueeze(1))
    largest = x.amax(1, keepdim=True)
    below = x - largest
    log_sum = below.exp().sum(1).log()
    if weight is None:
        every, share = below.sum(1) - log_sum * x.shape[1], torch.where(counts, 1.0, 0.0)
    else:
        every = (below * weight.reshape(-1, *(1,) * (x.dim() - 2))).sum(1) - log_sum * weight.sum()
        share = torch.where(counts, weight[at], 0.0)
    own = (own - largest).squeeze(1) - log_sum
    terms = torch.where(counts, own * share * (label_smoothing - 1.0) - every * (label_smoothing / x.shape[1]), 0.0)
    if reduction == 0:
        return terms
    dims = _dims(x, None)[:-1]
    return terms.sum(dims) if reduction == 2 else terms.sum(dims) / share.sum(dims)


def _places_in_windows(size: int, count: int, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The places of ``count`` windows that cover ``size`` places, ``[count, widest]``, and whether a window has so
    many.

    A smaller window has its last place several times.
    """
    import torch

    number, widest = (
        torch.arange(count, device=device)[:, None],
        max(-(-(at + 1) * size // count) - at * size // count for at in range(count)),
    )
    places, behind = (
        number * size // count + torch.arange(widest, device=device),
        ((number + 1) * size + count - 1) // count,
    )
    return torch.minimum(places, behind - 1), places < behind


def _in_windows(x: torch.Tensor, dim: int, places: torch.Tensor) -> torch.Tensor:
    """A dimension as two: windows, and their elements."""
    return _aten("index_select", x, dim, places.reshape(-1)).reshape(*x.shape[:dim], *places.shape, *x.shape[dim + 1 :])


def _adaptive_maximum(x: torch.Tensor, counts: Sequence[int]) -> Any:
    """The maximum of each window, and its place in the image; of one row of an image, in that."""
    import torch

    first, found, every, flat = x.dim() - len(counts), x, x, torch.zeros((), dtype=torch.int64, device=x.device)
    for number, count in enumerate(counts):
        places, _ = _places_in_windows(x.shape[first + number], count, x.device)
        found = _aten("amax", _in_windows(found, first + number, places), [first + number + 1])
        every = _in_windows(every, first + 2 * number, places)
        flat = flat[..., None, None] * x.shape[first + number] + places
    elements = [first + 2 * number + 1 for number in range(len(counts))]
    largest = found
    for dim in elements:
        largest = largest.unsqueeze(dim)
    return found, _aten("amin", torch.where((every == largest) | (every != every), flat, x[0].numel()), elements)


def _adaptive_mean(x: torch.Tensor, counts: Sequence[int]) -> Any:
    import torch

    first = x.dim() - len(counts)
    if all(size % count == 0 for size, count in zip(x.shape[first:], counts)):
        return NotImplemented
    for number, count in enumerate(counts):
        places, there = _places_in_windows(x.shape[first + number], count, x.device)
        behind = (1,) * (len(counts) - 1 - number)
        there = there.reshape(*there.shape, *behind)
        total = torch.where(there, _in_windows(x, first + number, places), 0.0).sum([first + number + 1])
        x = total / there.sum(1).to(x.dtype)
    return x


def _to(x: torch.Tensor, dtype: Any, non_blocking: bool = False, copy: bool = False, memory_format: Any = None) -> Any:
    import torch

    if memory_format is None or copy:
        return NotImplemented
    return torch.ops.aten.to.dtype(x, dtype).contiguous(memory_format=memory_format)


def _take_along_dim(x: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> Any:
    if dim is None:
        return _aten("gather", x.reshape(-1), 0, indices.reshape(-1))
    sizes = [max(a, b) for a, b in zip(x.shape, indices.shape, strict=True)]
    wide, at = ([*sizes[: dim % x.dim()], t.shape[dim], *sizes[dim % x.dim() + 1 :]] for t in (x, indices))
    return _aten("gather", x.expand(wide), dim, indices.expand(at))


def _pad(x: torch.Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    import torch

    if mode != "circular":
        return torch.ops.aten.pad.default(x, pad, mode, value)
    for number, (before, after) in enumerate(zip(pad[::2], pad[1::2])):
        dim, size = x.dim() - 1 - number, x.shape[-1 - number]
        if before or after:
            x = _aten("index_select", x, dim, (torch.arange(size + before + after, device=x.device) - before) % size)
    return x


_LEAST_FOR_PRODUCT = 25  # rows; of more, PyTorch computes Euclidean distances with a product


def _cdist(x: torch.Tensor, y: torch.Tensor, p: float = 2.0, compute_mode: int | None = None) -> Any:
    rows = max(x.shape[-2], y.shape[-2])
    if p != 2.0 or not (compute_mode == 1 or (not compute_mode and rows > _LEAST_FOR_PRODUCT)):
        return NotImplemented
    squares = x.square().sum([-1], True) + y.square().sum([-1], True).transpose(-2, -1)
    return _aten("clamp_min", squares - x @ y.transpose(-2, -1) * 2.0, 0.0).sqrt()


def _instance_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, use_input_stats: bool, momentum: float, eps: float, cudnn: bool
) -> Any:
    import torch

    if mean is not None or var is not None or not use_input_stats:
        return torch.ops.aten.instance_norm.default(x, weight, bias, mean, var, use_input_stats, momentum, eps, cudnn)
    y = (x - x.mean(_dims(x, None)[2:], True)) * (x.var(_dims(x, None)[2:], correction=0, keepdim=True) + eps).rsqrt()
    wide = (-1, *(1,) * (x.dim() - 2))
    y = y if weight is None else y * weight.view(wide)
    return y if bias is None else y + bias.view(wide)


_OWN: dict[str, Callable[..., Any]] = {
    **{f"aten.{name}.default": _of_integers(name, True) for name in ("amax", "amin")},
    "aten.argmax.default": _place_of("max"),
    "aten.argmin.default": _place_of("min"),
    **FUSED,
    "aten.max.dim": _extreme("max"),
    "aten.min.dim": _extreme("min"),
    "aten.max.default": _of_all("max"),
    "aten.min.default": _of_all("min"),
    "aten.var_mean.correction": _variance_mean,
    "aten.any.default": _holds("amax"),
    "aten.any.dim": _holds("amax"),
    "aten.any.dims": _holds("amax"),
    "aten.all.default": _holds("amin"),
    "aten.all.dim": _holds("amin"),
    "aten.all.dims": _holds("amin"),
    "aten.sum.default": _sum,
    "aten.sum.dim_IntList": _sum,
    "aten.linalg_vector_norm.default": _vector_norm,
    "aten.bucketize.Tensor": _bucketize,
    "aten.topk.default": _topk,
    "aten.instance_norm.default": _instance_norm,
    "aten.cdist.default": _cdist,
    "aten.one_hot.default": _one_hot,
    "aten.cross_entropy_loss.default": _cross_entropy,
    "aten.take_along_dim.default": _take_along_dim,
    **{f"aten.adaptive_max_pool{rank}d.default": _adaptive_maximum for rank in (1, 2, 3)},
    **{f"aten.adaptive_avg_pool{rank}d.default": _adaptive_mean for rank in (1, 2, 3)},
    **RESIZES,
    "aten.to.dtype": _to,
    "aten.pad.default": _pad,
    "aten.roll.default": _roll,
    "aten.affine_grid_generator.default": _affine_grid,
    "aten.scatter_reduce.two": _scatter_mean,
    "aten.einsum.default": _einsum,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split_with_sizes,
}
