"""Values that cross processes: trees of tensors described as JSON, with their bytes in memory that both map.

A *node* describes one value: ``{"kind": "tensor", "dtype", "device", "size", "stride", "offset"}``, ``{"kind": "tuple"
or "list", "items"}``, ``{"kind": "dict", "keys", "items"}``, ``{"kind": "value", "value"}`` for numbers, strings and
``None``, and ``{"kind": "other", "type"}`` for values that cannot cross. Nothing is ever unpickled.
"""

import fcntl
import math
import mmap
import os
from functools import partial
from typing import Any, Callable, Iterator

import torch

from kgen.devices.kinds import HOST
from kgen.evaluator.runtime.channel import memory_file
from kgen.evaluator.runtime.driver import SharedMemory, free_cached, wait_for

Node = dict[str, Any]

_ALIGN = 256
_NO_OTHER_SIZE = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
_NO_OTHER_CONTENTS = fcntl.F_SEAL_SEAL | 0x10  # F_SEAL_FUTURE_WRITE: its maker's mapping stays writable
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_PLAIN = (bool, int, float, str, type(None))
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes
_PART = 1 << 28  #: elements that are compared at once
_equal, _narrow = torch.equal, torch.Tensor.narrow  # bound here: a candidate may patch torch
#: Iteration of containers; a subclass may show other items.
_of_tuple, _of_list, _of_dict, _names = tuple.__iter__, list.__iter__, dict.items, dict.__iter__


def describe(value: Any, offset: int = 0) -> tuple[Node, int]:
    """The node of ``value`` with its tensors from byte ``offset`` on, and the byte behind the last."""
    kind = type(value)
    if _is_one_of(kind, _TENSORS):
        if value.layout != torch.strided:
            return {"kind": "other", "type": f"Tensor with layout {value.layout}"}, offset
        if any(hasattr(torch.Tensor, name) for name in _names(vars(value))):
            return {"kind": "other", "type": "Tensor with methods of its own"}, offset
        node = {
            "kind": "tensor",
            "dtype": str(value.dtype).removeprefix("torch."),
            "device": str(value.device.type),
            "size": list(value.shape),
            "stride": list(value.stride()),
            "offset": offset,
        }
        return node, offset + -(-value.numel() * value.element_size() // _ALIGN) * _ALIGN
    if (parts := _parts(value)) is not None:
        keys, items = [], []
        for key, item in parts:
            node, offset = describe(item, offset)
            keys.append(key if _is_one_of(type(key), _PLAIN) else str(key))
            items.append(node)
        if issubclass(kind, dict):
            return {"kind": "dict", "keys": keys, "items": items}, offset
        return {"kind": "tuple" if issubclass(kind, tuple) else "list", "items": items}, offset
    if _is_one_of(kind, _PLAIN):
        return {"kind": "value", "value": value}, offset
    return {"kind": "other", "type": kind.__name__}, offset


def _parts(value: Any) -> list[tuple[Any, Any]] | None:
    """The items of a container by index, or of a dict by key in their order; ``None`` for other values."""
    kind = type(value)
    if issubclass(kind, dict):
        return sorted(_of_dict(value), key=lambda item: str(item[0]))
    if issubclass(kind, tuple):
        return [*enumerate(_of_tuple(value))]
    return [*enumerate(_of_list(value))] if issubclass(kind, list) else None


def _is_one_of(kind: type, kinds: tuple[type, ...]) -> bool:
    """Whether ``kind`` is one of ``kinds`` by identity: a class may claim to equal any, and builtins may be
    replaced."""
    for other in kinds:
        if kind is other:
            return True
    return False


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a value, in the order of :func:`nodes`, with the path of each such as ``[0]``."""
    if (parts := _parts(value)) is None:
        yield path, value
    else:
        for key, item in parts:
            yield from leaves(item, f"{path}[{str(key)!r}]" if issubclass(type(value), dict) else f"{path}[{key}]")


def nodes(node: Node) -> Iterator[Node]:
    """The leaves of a description."""
    if "items" in node:
        for item in node["items"]:
            yield from nodes(item)
    else:
        yield node


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a tensor or parameter, not of a subclass."""
    return _is_one_of(type(value), _TENSORS)


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors among the leaves of ``value``, without subclasses, which may run code when they are read."""
    return [leaf for _, leaf in leaves(value) if is_tensor(leaf)]


def is_inexact(x: torch.Tensor) -> bool:
    """Whether ``x`` is floating or complex."""
    return x.dtype.is_floating_point or x.dtype.is_complex


def same_bits(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors of the same size and type have the same bits, in any memory layout."""
    if x.is_complex():
        x, y = (torch.view_as_real(z.detach().resolve_conj()) for z in (x, y))
    if x.is_floating_point():
        integer = _INTEGERS[x.element_size()]
        x, y = x.detach().contiguous().view(integer), y.detach().contiguous().view(integer)
    step = max(1, _PART * len(x) // x.numel()) if x.ndim and x.numel() else 0
    if not step or step >= len(x):
        return _equal(x, y)
    starts = range(0, len(x), step)
    return all(_equal(*(_narrow(z, 0, first, min(step, len(z) - first)) for z in (x, y))) for first in starts)


def span(x: torch.Tensor) -> int:
    """The number of elements in memory from the first to the last of ``x``."""
    return 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride())) if x.numel() else 0


def map_tensors(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """``value`` with ``function`` applied to each of its tensors."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (tuple, list)):
        items = [map_tensors(item, function) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: map_tensors(item, function) for key, item in value.items()}
    return value


def is_on(value: Any, device: str) -> bool:
    """Whether all tensors of ``value`` are plain tensors on ``device``."""
    kind = device.partition(":")[0]
    return all(leaf.get("device", kind) == kind and leaf["kind"] != "other" for leaf in nodes(describe(value)[0]))


class Arena:
    """Memory that holds the bytes of tensors: a memory file. It owns ``fd``, the descriptor by which others map it."""

    def __init__(self, fd: int, *, writable: bool) -> None:
        self.fd = fd
        self.size = os.fstat(fd).st_size
        # Writes into a private mapping stay with the writer.
        flags = mmap.MAP_SHARED if writable else mmap.MAP_PRIVATE
        self._map = mmap.mmap(fd, self.size, flags, mmap.PROT_READ | mmap.PROT_WRITE)

    @staticmethod
    def create(size: int, place: str = HOST.name) -> "Arena":
        """A writable arena of at least ``size`` bytes in the memory of the device ``place``."""
        if place != HOST.name:
            return DeviceArena(place, size)
        fd = memory_file("kgen-arena", max(size, mmap.PAGESIZE))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _NO_OTHER_SIZE)  # a process that maps a shrinking file is killed
        return Arena(fd, writable=True)

    @staticmethod
    def open(fd: int, size: int, place: str, *, writable: bool = False) -> "Arena":
        """The arena of ``size`` bytes in the memory of ``place`` whose descriptor came over a channel."""
        return Arena(fd, writable=writable) if place == HOST.name else DeviceArena(place, size, fd, writable=writable)

    @staticmethod
    def holding(value: Any, place: str = HOST.name) -> tuple["Arena", Node]:
        """A new arena with the bytes of ``value``'s tensors, sealed against changes, and their node."""
        node, size = describe(value)
        arena = Arena.create(size, place)
        arena.write(value, node)
        arena.seal()
        return arena, node

    def seal(self) -> None:
        """Let no other process change the contents."""
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _NO_OTHER_CONTENTS)

    def write(self, value: Any, node: Node) -> None:
        """Copy the bytes of ``value``'s tensors to the places in ``node``. Raises ``ValueError`` if they do not fit."""
        for leaf, (_, item) in zip(nodes(node), leaves(value)):
            if leaf["kind"] == "tensor" and item.numel():
                self._flat(leaf).copy_(item.detach().reshape(-1))

    def read(self, node: Node, device: str | torch.device = "cpu") -> Any:
        """The value that ``node`` describes; on the arena's device its tensors may share the arena's memory."""
        kind = node["kind"]
        if kind == "tensor":
            return self._tensor(node, device)
        if kind == "value":
            return node["value"]
        if kind == "other":
            raise ValueError(f"a {node['type']} cannot cross between processes")
        items = [self.read(item, device) for item in node["items"]]
        if kind == "dict":
            return dict(zip(node["keys"], items))
        return items if kind == "list" else tuple(items)

    def _tensor(self, node: Node, device: str | torch.device) -> torch.Tensor:
        size, stride, dtype = node["size"], node["stride"], getattr(torch, node["dtype"])
        if not math.prod(size):
            return torch.empty(size, dtype=dtype, device=device)
        flat = self._flat(node).view(size)
        if list(flat.stride()) == stride or 0 in stride:
            return flat.to(device)
        return torch.empty_strided(size, stride, dtype=dtype, device=device).copy_(flat)

    def _flat(self, node: Node) -> torch.Tensor:
        dtype = getattr(torch, node["dtype"])
        return torch.frombuffer(self._map, dtype=dtype, count=math.prod(node["size"]), offset=node["offset"])

    def close(self) -> None:
        os.close(self.fd)


class DeviceArena(Arena):
    """An arena in the memory of a GPU. Tensors that are read share it, and are gone once it is closed. The bytes of a
    new one, without ``fd``, are all set to NaN. Raises :class:`DriverError` where the memory cannot be shared, and
    ``torch.OutOfMemoryError``."""

    def __init__(self, place: str, size: int, fd: int | None = None, *, writable: bool = True) -> None:
        self._device = torch.device(place)
        share = partial(SharedMemory.at, self._device.index or 0, size, fd, writable=writable)
        try:
            self._memory = share()
        except torch.OutOfMemoryError:
            free_cached()  # memory that torch keeps for later
            self._memory = share()
        self.fd, self.size = self._memory.fd, self._memory.size
        wait_for(self._device)  # new memory is filled

    def seal(self) -> None:
        """Nothing is left to do: other processes map the memory for reading."""

    def write(self, value: Any, node: Node) -> None:
        super().write(value, node)
        wait_for(self._device)

    def _flat(self, node: Node) -> torch.Tensor:
        dtype, count = getattr(torch, node["dtype"]), math.prod(node["size"])
        if not 0 <= node["offset"] <= self.size - count * dtype.itemsize:
            raise ValueError("a tensor lies outside the arena")
        address = self._memory.address + node["offset"]
        storage = torch._C._construct_storage_from_data_pointer(address, self._device, count * dtype.itemsize)
        return torch.empty(0, dtype=dtype, device=self._device).set_(storage, 0, (count,), (1,))

    def close(self) -> None:
        wait_for(self._device)  # unmapping does not wait for queued work
        self._memory.close()
        super().close()
