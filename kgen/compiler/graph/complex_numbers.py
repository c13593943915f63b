"""Complex numbers as pairs of real ones, which kernels compute with.

    z * w            (re, im) -> stack(z.re * w.re - z.im * w.im, z.re * w.im + z.im * w.re)
    z.reshape(s)     the pairs' reshape(*s, 2)

A tensor of complex numbers has the memory of a float32 tensor with one more dimension, of two elements. Each function
here is an operator on such pairs, in ATen's operators: the decomposition of the operator on complex numbers. An
operator without one stays a library call. :func:`torch.view_as_real` and :func:`torch.view_as_complex`, which move
nothing, stand between both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Sequence

from kgen.compiler.graph.library_call import X, torch_

if TYPE_CHECKING:
    import torch

DTYPE = "complex64"
TO_PAIRS, TO_COMPLEX = "aten.view_as_real.default", "aten.view_as_complex.default"
TO_PAIRS_CALL = torch_("view_as_real", X.method("resolve_conj"))
TO_COMPLEX_CALL = torch_("view_as_complex", X)


@dataclass(frozen=True)
class Pairs:
    """Complex numbers: ``of`` is a real tensor whose last dimension holds each number's real and imaginary part."""

    of: torch.Tensor

    @property
    def real(self) -> torch.Tensor:
        return self.of.select(-1, 0)

    @property
    def imag(self) -> torch.Tensor:
        return self.of.select(-1, 1)


def _stack(real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.stack([real, imag], -1)


def _parts(x: Any) -> tuple[Any, Any]:
    """The real and the imaginary part; that of a real tensor or number is ``None``."""
    return (x.real, x.imag) if isinstance(x, (Pairs, complex)) else (x, None)


def _mul(x: Any, y: Any) -> Any:
    (a, b), (c, d) = _parts(x), _parts(y)
    if b is not None and d is not None:
        return _stack(a * c - b * d, a * d + b * c)
    pairs, factor = (x, c) if d is None else (y, a)
    if isinstance(pairs, complex):
        return _stack(factor * pairs.real, factor * pairs.imag)
    return pairs.of * (factor if isinstance(factor, (int, float)) else factor.unsqueeze(-1))


def _div(x: Any, y: Any) -> Any:
    if isinstance(y, (Pairs, complex)):
        return NotImplemented  # PyTorch scales both parts first, so that squares do not overflow
    return x.of / (y if isinstance(y, (int, float)) else y.unsqueeze(-1))


def _add(sign: int) -> Callable[..., Any]:
    def run(x: Any, y: Any, *, alpha: Any = 1) -> Any:
        if alpha != 1:
            return NotImplemented
        if isinstance(x, Pairs) and isinstance(y, Pairs):
            return x.of + y.of if sign > 0 else x.of - y.of
        (a, b), (c, d) = _parts(x), _parts(y)
        real = a + c if sign > 0 else a - c
        imag = (d if sign > 0 else -d) if b is None else b if d is None else b + sign * d
        return _stack(real, _alike(real, imag))

    return run


def _alike(real: torch.Tensor, imag: Any) -> torch.Tensor:
    """The imaginary part with the real one's shape."""
    import torch

    return imag.expand(real.shape) if isinstance(imag, torch.Tensor) else torch.full_like(real, imag)


def _exp(x: Pairs) -> torch.Tensor:
    length = x.real.exp()
    return _stack(length * x.imag.cos(), length * x.imag.sin())


def _conj(x: Pairs) -> torch.Tensor:
    return _stack(x.real, -x.imag)


def _abs(x: Pairs) -> torch.Tensor:
    return x.real.hypot(x.imag)


def _polar(length: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:
    return _stack(length * angle.cos(), length * angle.sin())


def _dim(dim: int) -> int:
    """A dimension of complex numbers as one of their pairs."""
    return dim if dim >= 0 else dim - 1


def _with_dims(name: str, count: int) -> Callable[..., Any]:
    """A view whose ``count`` first arguments are dimensions."""
    return lambda x, *given: _aten(name, x.of, *map(_dim, given[:count]), *given[count:])


def _aten(name: str, *given: Any) -> Any:
    import torch

    packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)(*given)


def _with_sizes(name: str) -> Callable[..., Any]:
    return lambda x, sizes: _aten(name, x.of, [*sizes, 2])


def _flatten(x: Pairs, start: int = 0, end: int = -1) -> torch.Tensor:
    return x.of.flatten(_dim(start), _dim(end))


def _permute(x: Pairs, dims: Sequence[int]) -> torch.Tensor:
    return x.of.permute([*map(_dim, dims), -1])


def _transpose(x: Pairs) -> torch.Tensor:
    return x.of.transpose(-3, -2) if x.of.dim() > 2 else x.of


def _together(name: str) -> Callable[..., Any]:
    def run(tensors: Sequence[Any], dim: int = 0) -> Any:
        if not all(isinstance(x, Pairs) for x in tensors):
            return NotImplemented
        return _aten(name, [x.of for x in tensors], _dim(dim))

    return run


#: By the operator's name. Arguments of complex numbers are :class:`Pairs`; so is the result, as a real tensor, if it is
#: one.
PAIRED: dict[str, Callable[..., Any]] = {
    TO_COMPLEX: lambda x: x,
    TO_PAIRS: lambda x: x.of,
    "aten.complex.default": _stack,
    "aten.polar.default": _polar,
    "aten.real.default": lambda x: x.real,
    "aten.imag.default": lambda x: x.imag,
    "aten.conj.default": _conj,
    "aten._conj.default": _conj,
    "aten.conj_physical.default": _conj,
    "aten.resolve_conj.default": lambda x: x.of,
    "aten.abs.default": _abs,
    "aten.exp.default": _exp,
    "aten.neg.default": lambda x: -x.of,
    "aten.mul.Tensor": _mul,
    "aten.mul.Scalar": _mul,
    "aten.div.Tensor": _div,
    "aten.add.Tensor": _add(1),
    "aten.sub.Tensor": _add(-1),
    **{
        f"aten.{name}": _with_sizes(name)
        for name in ("view.default", "reshape.default", "_unsafe_view.default", "expand.default")
    },
    **{
        f"aten.{name}": _with_dims(name, 1)
        for name in ("unsqueeze.default", "squeeze.dim", "select.int", "slice.Tensor", "unflatten.int")
    },
    "aten.transpose.int": _with_dims("transpose.int", 2),
    "aten.flatten.using_ints": _flatten,
    "aten.permute.default": _permute,
    "aten.t.default": _transpose,
    "aten.mT.default": _transpose,
    "aten.cat.default": _together("cat.default"),
    "aten.stack.default": _together("stack.default"),
    "aten.clone.default": lambda x, **_: x.of.clone(),
    "aten.contiguous.default": lambda x, **_: x.of.contiguous(),
}


def is_paired(target: str, given: Sequence[Any]) -> bool:
    """Whether a call with these arguments is one on complex numbers, or makes some, that has an entry in
    :data:`PAIRED`."""
    import torch

    makes = target in (TO_COMPLEX, "aten.complex.default", "aten.polar.default")
    return target in PAIRED and (
        makes or any(x.is_complex() if isinstance(x, torch.Tensor) else isinstance(x, complex) for x in given)
    )
