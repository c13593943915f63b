"""cuDNN's arithmetic: whether a convolution or a recurrent layer is multiplied in TF32, found by running it.

cuDNN chooses by shape, strides, batch size and version whether it uses what PyTorch's flags allow. So each call of
PyTorch's own forward is run once more, on normal random numbers of the same shapes and strides. Its error against
float64 tells. For a convolution, float64 computes the first row of the batch.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

import torch

from kgen.evaluator.correctness.operators import Counted
from kgen.protocol import LibraryProduct

aten = torch.ops.aten
OPERATORS = frozenset({aten.convolution.default, aten._cudnn_rnn.default})  #: those that cuDNN may run in TF32
#: Matmuls, which multiply their last two arguments.
MATMULS = frozenset(
    {
        aten.mm.default,
        aten.bmm.default,
        aten.mv.default,
        aten.dot.default,
        aten.addmm.default,
        aten.addmv.default,
        aten.baddbmm.default,
    }
)
_SEED = 20_260_301  # of the random operands

#: A call by its operator and arguments: tensors as :class:`_Operand`, all others by value.
Call = tuple[Any, tuple[Any, ...]]


class Noted(Counted):
    """Notes the calls of :data:`OPERATORS`, in order, and whether there are matmuls or attention."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.matmuls = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in OPERATORS:
            self.calls.append((func, _described(args)))
        self.matmuls = self.matmuls or func in MATMULS or "attention" in str(func)
        return super().__torch_dispatch__(func, types, args, kwargs)


class _Operand(tuple):
    """The shape, strides and dtype of a tensor."""


def _described(args: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments that can be compared, and that hold no memory of a device."""
    return tuple(
        _Operand((tuple(x.shape), x.stride(), x.dtype)) if isinstance(x, torch.Tensor)
        else _described(x) if isinstance(x, (list, tuple)) else x
        for x in args
    )  # fmt: skip


class Products:
    """The calls of cuDNN on one device with their errors, each distinct call measured once."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._errors: dict[Call, float] = {}

    def errors(self, calls: Sequence[Call]) -> tuple[float, ...]:
        """The relative root mean square error of each call; 0 for half types, and where the device lacks the memory."""
        return tuple(map(self._error, calls))

    def _error(self, call: Call) -> float:
        if call not in self._errors:
            self._errors[call] = self._measured(*call) if _operand(call).dtype is torch.float32 else 0.0
        return self._errors[call]

    def _measured(self, func: Any, described: tuple[Any, ...]) -> float:
        generator = torch.Generator(self._device).manual_seed(_SEED)
        try:
            with torch.no_grad():
                args = _ways[func](_made(described, generator))
                found = _first(func(*args))
                rows = 1 if func is aten.convolution.default else len(found)
                exact = _first(func(*_doubled(args, rows)))
                return float((found[:rows].double() - exact).norm() / exact.norm())
        except torch.OutOfMemoryError:
            return 0.0  # PyTorch's measured error bounds a candidate in any case


def _operand(call: Call) -> Any:
    """The first operand, without memory."""
    shape, stride, dtype = call[1][0]
    return torch.empty_strided(shape, stride, dtype=dtype, device="meta")


def _made(described: Any, generator: torch.Generator) -> Any:
    """Arguments with normal random numbers for each tensor."""
    if isinstance(described, _Operand):
        shape, stride, dtype = described
        made = torch.empty_strided(shape, stride, dtype=dtype, device=generator.device)
        return made.normal_(generator=generator) if dtype.is_floating_point else made.zero_()
    return [_made(x, generator) for x in described] if isinstance(described, tuple) else described


def _convolution(args: list[Any]) -> list[Any]:
    """Without the bias, which rounds once more."""
    return [*args[:2], None, *args[3:]]


def _recurrent(args: list[Any]) -> list[Any]:
    """With weights of a usual size, which :func:`torch._cudnn_rnn` packs itself, and without dropout."""
    names = [argument.name for argument in aten._cudnn_rnn.default._schema.arguments]
    changed = {
        "weight": [w.div_(w.shape[-1] ** 0.5) for w in args[names.index("weight")]],
        "weight_buf": None,
        "dropout": 0.0,
    }
    return [changed.get(name, value) for name, value in zip(names, args)]


_ways = {aten.convolution.default: _convolution, aten._cudnn_rnn.default: _recurrent}


def _doubled(args: Any, rows: int) -> list[Any]:
    """Arguments in float64, with the first ``rows`` rows of the first operand."""

    def doubled(x: Any) -> Any:
        if isinstance(x, list):
            return [doubled(item) for item in x]
        return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    return doubled([args[0][:rows], *args[1:]])


def _first(results: Any) -> torch.Tensor:
    return results if isinstance(results, torch.Tensor) else results[0]


def products(calls: Sequence[Call], errors: Mapping[int, Sequence[float]]) -> tuple[LibraryProduct, ...]:
    """The ``calls`` at the problem's own batch with their ``errors`` by number of rows, each distinct one once.

    A call that a smaller batch has not counts as float32: its number there tells nothing.
    """
    found: dict[LibraryProduct, dict[int, float]] = {}
    for index, call in enumerate(calls):
        of = found.setdefault(_product(call), {})
        for rows, some in errors.items():
            of[rows] = min(of.get(rows, 1.0), some[index] if len(some) == len(calls) else 0.0)
    return tuple(
        LibraryProduct(**(vars(of) | {"errors": tuple(sorted(by_rows.items(), reverse=True))}))
        for of, by_rows in found.items()
    )


def _product(call: Call) -> LibraryProduct:
    func, args = call
    name, shape = str(func).removesuffix(".default"), args[0][0]
    if func is not aten.convolution.default:
        return LibraryProduct(name, shape, args[1][0][0])
    stride, padding, dilation, transposed, _, groups = args[3:]
    return LibraryProduct(name, shape, args[1][0], tuple(stride), tuple(padding), tuple(dilation), groups, transposed)
