"""Fences behind the memory that a candidate allocates while it is validated: its outputs and its workspaces.

A :class:`Fences` is a dispatch mode. It gives each tensor that forward allocates some bytes more than the tensor shows.
These bytes must be unchanged when forward has returned. Allocations inside an operator of PyTorch are not seen.
A rendered file may make one allocation of several workspaces. Its launches show where each begins.
"""

import weakref
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, NamedTuple, Sequence

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kgen.candidate import GAP

_BYTES = 4096  #: of a fence
_BYTE = 0xFF  #: of it; a NaN in every floating dtype
_MOST_HELD = 1 << 28  #: bytes; of memory that is kept for its fence alone
_aten = torch.ops.aten
#: Operators that allocate, and the byte that they fill with: ``None`` where contents are free.
_FILLS: dict[Any, int | None] = {
    _aten.empty.memory_format: None,
    _aten.empty_like.default: None,
    _aten.empty_strided.default: None,
    _aten.new_empty.default: None,
    _aten.new_empty_strided.default: None,
    _aten.zeros.default: 0,
    _aten.zeros_like.default: 0,
    _aten.new_zeros.default: 0,
}
_RESIZES = {_aten.resize_.default, _aten.resize_as_.default}
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_empty, _cat, _fill, _set = torch.empty, torch.cat, torch.Tensor.fill_, torch.Tensor.set_
_storage = torch.Tensor.untyped_storage
_uses: Callable[[int], int] = torch._C._storage_Use_Count


@dataclass(frozen=True)
class _Fence:
    """The memory of one tensor as bytes, with a fence behind ``size`` of them."""

    memory: torch.Tensor
    size: int
    tensor: "weakref.ref[torch.Tensor]"
    uses: int  # of the memory by the fence alone
    is_bytes: bool = False  # whether the tensor is a row of bytes, as an allocation of several workspaces is
    parts: set[int] = field(default_factory=set)  # where these begin, behind a gap that is a fence, too

    @property
    def whole(self) -> list[torch.Tensor]:
        """The bytes that must be unchanged."""
        return [self.memory[-_BYTES:], *(self.memory[part - GAP : part] for part in self.parts)]

    @property
    def is_unused(self) -> bool:
        """Whether no tensor of the candidate uses the memory."""
        return _uses(_storage(self.memory)._cdata) <= self.uses

    def resting(self) -> "_Resting":
        return _Resting(self.tensor, self.size, self.memory.data_ptr())


class _Resting(NamedTuple):
    """A fence between two blocks. It does not keep the memory alive."""

    tensor: "weakref.ref[torch.Tensor]"
    size: int
    place: int

    def woken(self) -> torch.Tensor | None:
        """The memory, if the tensor still has it."""
        tensor = self.tensor()
        if tensor is None or tensor.data_ptr() != self.place or _storage(tensor).nbytes() != self.size + _BYTES:
            return None
        return _set(_empty(0, dtype=torch.uint8, device=tensor.device), _storage(tensor))


class Fences(TorchDispatchMode):
    """A fence behind each tensor that the block allocates on ``device_type``, unless it is ``capturing`` its calls."""

    def __init__(self, device_type: str, capturing: Callable[[], bool] = lambda: False) -> None:
        super().__init__()
        self._device_type = device_type
        self._capturing = capturing
        self._fences: list[_Fence] = []  # of this block
        self._held = 0  # bytes of their memory
        self._resting: list[_Resting] = []  # of earlier blocks
        self._broken = False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Leave what ``torch.compile`` does as it is."""
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to skip it, each worker would import torch's compiler, which takes a second."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _RESIZES:
            self._forget(args[0].data_ptr())
        if func not in _FILLS or not self._serves(args, kwargs):
            return func(*args, **kwargs)
        like = func(*args, **kwargs | {"device": "meta"})
        size = _storage(like).nbytes()
        if not size or like.layout != torch.strided:
            return func(*args, **kwargs)
        self._make_room(size)
        memory = _empty(size + _BYTES, dtype=torch.uint8, device=_device(args, kwargs))
        _fill(memory, _BYTE)  # all of it: an element that nobody writes shows
        if (fill := _FILLS[func]) is not None:
            _fill(memory[:size], fill)
        uses = _uses(_storage(memory)._cdata)
        found = _set(_empty(0, dtype=like.dtype, device=memory.device), _storage(memory), 0, like.shape, like.stride())
        self._hold(_Fence(memory, size, weakref.ref(found), uses, like.dtype == torch.uint8 and like.ndim == 1))
        return found

    def _forget(self, place: int) -> None:
        """Remove the fence behind the memory at ``place``: its tensor may need those bytes now."""
        self._fences = [fence for fence in self._fences if fence.memory.data_ptr() != place]
        self._resting = [resting for resting in self._resting if resting.place != place]

    def _serves(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        plain = not args or not isinstance(args[0], torch.Tensor) or type(args[0]) in _TENSORS
        if not plain or kwargs.get("pin_memory") or _device(args, kwargs).type != self._device_type:
            return False
        return not self._capturing()  # a captured graph would fill it in each timed call

    def _make_room(self, size: int) -> None:
        """Before ``size`` more bytes, free memory that only fences use, where it is much. The candidate has freed this
        memory."""
        if self._held + size > _MOST_HELD:
            unused = [fence for fence in self._fences if fence.is_unused]
            self._look(unused)
            self._fences = [fence for fence in self._fences if not any(fence is other for other in unused)]
            self._held = 0  # the rest is the candidate's own

    def see_launch(self, arguments: Iterable[Any]) -> None:
        """Take in the arguments of a launch: pointers into a row of bytes begin parts of it."""
        pointers = [value for value in arguments if type(value) is int]
        for fence in self._fences:
            if not fence.is_bytes:
                continue
            places = (pointer - fence.memory.data_ptr() for pointer in pointers)
            fence.parts.update(place for place in places if GAP <= place < fence.size)

    def _hold(self, fence: _Fence) -> None:
        """Keep the memory until the end of the block."""
        self._fences.append(fence)
        self._held += fence.memory.numel()

    def is_whole(self) -> bool:
        """Whether all fences are as they were, also those of earlier blocks whose tensors live. Call it after a block,
        once the device is idle."""
        self._look(self._fences)
        self._see(memory[-_BYTES:] for resting in self._resting if (memory := resting.woken()) is not None)
        self._resting += [fence.resting() for fence in self._fences]
        self._fences, self._held = [], 0
        self._resting = [resting for resting in self._resting if resting.tensor() is not None]
        broken, self._broken = self._broken, False
        return not broken

    def _look(self, fences: Iterable[_Fence]) -> None:
        """Notice where a fence has changed."""
        self._see(part for fence in fences for part in fence.whole)

    def _see(self, fences: Iterable[torch.Tensor]) -> None:
        if found := list(fences):
            self._broken |= bool((_cat(found) != _BYTE).any())


def _device(args: Sequence[Any], kwargs: dict[str, Any]) -> torch.device:
    """The device of an allocation."""
    like = args[0].device if args and isinstance(args[0], torch.Tensor) else "cpu"
    return torch.device(kwargs.get("device") or like)
