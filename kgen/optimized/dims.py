"""Further sizes as ranges: ``torch.export.Dim``s by input, as ``torch.export`` takes them, made into calls.

    x of (4, 128), {1: Dim("length", min=64, max=512)} ──> calls with (4, 64) and (4, 512)

A longer input repeats the elements that were given, so that places and classes stay within their bounds.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.export import Dim

from kgen.errors import InputError

Call = tuple[tuple[Any, ...], dict[str, Any]]


def has_dims(given: Any) -> bool:
    """Whether an entry of ``sizes`` names ranges, and not inputs."""
    return any(True for _ in _dims(given))


def calls_of(given: Any, call: Call, forward: Callable[..., Any]) -> list[Call]:
    """The calls at both ends of the ranges that an entry names; all ranges are at the same end at once.

    ``given`` is a value of ``dynamic_shapes``: a dict of ``Dim`` by dimension for one tensor. Several tensors have a
    sequence of such dicts, or a dict of them by parameter. Raises :class:`InputError` where it does not fit ``call``.
    """
    for dim in _dims(given):
        if not isinstance(dim.min, int) or not isinstance(dim.max, int):
            raise InputError(f"sizes: Dim {dim.__name__} has no max: kgen makes kernels for both ends of its range")
    args, kwargs = call
    if isinstance(given, Mapping) and all(isinstance(key, int) for key in given):
        given = (given,)
    if isinstance(given, Mapping):
        names = [*inspect.signature(forward).parameters][: len(args)]
        if unknown := [name for name in given if name not in (*names, *kwargs)]:
            raise InputError(f"sizes: no argument {unknown[0]!r} was given")
        of_args, of_kwargs = [given.get(name) for name in names], {name: given.get(name) for name in kwargs}
    else:
        of_args, of_kwargs = [*given], {}
        if len(of_args) != len(args):
            raise InputError(f"sizes: {len(of_args)} entries of Dims for {len(args)} inputs")
    ends: tuple[Callable[[Any], int], ...] = (lambda dim: dim.min, lambda dim: dim.max)
    return [
        (
            tuple(_sized(x, of, end) for x, of in zip(args, of_args)),
            {k: _sized(x, of_kwargs.get(k), end) for k, x in kwargs.items()},
        )
        for end in ends
    ]


def _sized(value: Any, given: Any, end: Callable[[Any], int]) -> Any:
    """A value whose tensors have the sizes of one end of their ranges."""
    if given is None:
        return value
    if not isinstance(value, torch.Tensor):
        if not isinstance(value, (list, tuple)) or not isinstance(given, (list, tuple)) or len(value) != len(given):
            raise InputError(f"sizes: Dims are for tensors and sequences of them, not for a {type(value).__name__}")
        return type(value)(_sized(x, of, end) for x, of in zip(value, given))
    if isinstance(given, (list, tuple)):
        given = dict(enumerate(given))
    if not isinstance(given, Mapping):
        raise InputError("sizes: give the Dims of a tensor as a dict by dimension")
    for at, dim in given.items():
        if not isinstance(at, int) or not -value.dim() <= at < value.dim():
            raise InputError(f"sizes: a tensor of {value.dim()} dimensions has no dimension {at!r}")
        if isinstance(dim, Dim) or isinstance(dim, int):
            size = dim if isinstance(dim, int) else end(dim)
            value = value.index_select(at, torch.arange(size, device=value.device) % value.shape[at])
    return value


def _dims(given: Any) -> Iterator[Any]:
    return (leaf for leaf in pytree.tree_leaves(given) if isinstance(leaf, Dim))
