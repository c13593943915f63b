"""Tensors that stay on the GPU while they cross processes: an arena in device memory, used as :class:`Arena` is."""

from __future__ import annotations

import math
import os
from typing import Any

import torch

from kgen.evaluator.runtime.arena import Arena, Node, describe, leaves, nodes, rebuild
from kgen.evaluator.runtime.driver import SharedMemory, copy

_UNWRITTEN = 0xFF  # four of these are a NaN


class DeviceArena:
    """Device memory that holds the bytes of tensors. Raises :class:`DriverError` where it cannot be shared."""

    def __init__(self, memory: SharedMemory, device: str) -> None:
        self.device = torch.device(device)
        self._memory = memory

    @property
    def fd(self) -> int:
        return self._memory.fd

    @property
    def size(self) -> int:
        """Bytes; rounded up."""
        return self._memory.size

    @classmethod
    def create(cls, size: int, device: str) -> "DeviceArena":
        """A new arena whose bytes are all set to NaN."""
        arena = cls(SharedMemory.create(size, torch.device(device).index or 0), device)
        arena._memory.fill(_UNWRITTEN, arena._stream())
        torch.cuda.synchronize(arena.device)
        return arena

    @classmethod
    def open(cls, fd: int, size: int, device: str, *, writable: bool = False) -> "DeviceArena":
        """The arena of ``size`` bytes behind a descriptor that came over a channel; the arena owns the descriptor."""
        index = torch.device(device).index or 0
        return cls(SharedMemory.open(fd, size, index, writable=writable), device)

    def write(self, value: Any, node: Node) -> None:
        """Copy the bytes of ``value``'s tensors to the places in ``node``. Raises ``ValueError`` if they do not fit."""
        for leaf, (_, item) in zip(nodes(node), leaves(value)):
            if leaf["kind"] != "tensor":
                continue
            flat = item.detach().to(self.device).contiguous()
            if leaf["offset"] + flat.nbytes > self.size:
                raise ValueError("the arena is too small")
            copy(self._memory.address + leaf["offset"], flat.data_ptr(), flat.nbytes, self._stream())
        torch.cuda.synchronize(self.device)

    def read(self, node: Node, device: str | torch.device | None = None) -> Any:
        """The value that ``node`` describes. Its tensors share the arena's memory, and are gone once it is closed."""
        return rebuild(node, self._tensor)

    def _tensor(self, node: Node) -> torch.Tensor:
        dtype, size = getattr(torch, node["dtype"]), node["size"]
        nbytes = math.prod(size) * dtype.itemsize
        if not 0 <= node["offset"] <= self.size - nbytes:
            raise ValueError("a tensor lies outside the arena")
        flat = torch.empty(size, dtype=dtype, device=self.device if not nbytes else "meta")
        if not nbytes:
            return flat
        address = self._memory.address + node["offset"]
        storage = torch._C._construct_storage_from_data_pointer(address, self.device, nbytes)
        shared = torch.empty(0, dtype=dtype, device=self.device).set_(storage, 0, size, flat.stride())
        if list(flat.stride()) == node["stride"] or any(s == 0 for s in node["stride"]):
            return shared
        return torch.empty_strided(size, node["stride"], dtype=dtype, device=self.device).copy_(shared)

    def _stream(self) -> int:
        return torch.cuda.current_stream(self.device).cuda_stream

    def seal(self) -> None:
        """Nothing is left to do: other processes map the memory for reading."""

    def close(self) -> None:
        torch.cuda.synchronize(self.device)  # unmapping does not wait for queued work
        self._memory.close()
        os.close(self.fd)


def created(size: int, device: str, shared: bool) -> Arena | DeviceArena:
    """A writable arena of ``size`` bytes: in device memory where it is ``shared``, else in a memory file."""
    return DeviceArena.create(size, device) if shared else Arena.create(size)


def holding(value: Any, device: str = "cpu", shared: bool = False) -> tuple[Arena | DeviceArena, Node]:
    """A new arena with the bytes of ``value``'s tensors, sealed against changes, and their node."""
    node, size = describe(value)
    arena = created(size, device, shared)
    arena.write(value, node)
    arena.seal()
    return arena, node


def open_arena(fd: int, size: int, device: str, shared: bool, *, writable: bool = False) -> Arena | DeviceArena:
    """The arena behind a descriptor, of the kind that :func:`created` makes."""
    return DeviceArena.open(fd, size, device, writable=writable) if shared else Arena.open(fd, writable=writable)
