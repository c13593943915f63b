"""Tensors that stay on the GPU while they cross processes: an arena in device memory."""

from __future__ import annotations

import math
import os
from typing import Any

import torch

from kgen.evaluator.runtime.arena import Arena, Node, describe
from kgen.evaluator.runtime.driver import SharedMemory

_UNWRITTEN = 0xFF  # four of these are a NaN


class DeviceArena(Arena):
    """Device memory that holds the bytes of tensors. Tensors that are read share it, and are gone once it is closed.

    Raises :class:`DriverError` where the memory cannot be shared.
    """

    def __init__(self, memory: SharedMemory, device: torch.device) -> None:
        self.fd, self.size = memory.fd, memory.size
        self._device = device
        self._memory = memory

    @classmethod
    def on(cls, device: str, size: int, fd: int | None = None, *, writable: bool = True) -> "DeviceArena":
        """A new arena whose bytes are all set to NaN. With ``fd``, the arena of ``size`` bytes behind that descriptor,
        which came over a channel; the arena owns the descriptor."""
        place = torch.device(device)
        if fd is not None:
            return cls(SharedMemory.open(fd, size, place.index or 0, writable=writable), place)
        arena = cls(SharedMemory.create(size, place.index or 0), place)
        arena._memory.fill(_UNWRITTEN, torch.cuda.current_stream(place).cuda_stream)
        torch.cuda.synchronize(place)
        return arena

    def write(self, value: Any, node: Node) -> None:
        super().write(value, node)
        torch.cuda.synchronize(self._device)

    def _flat(self, node: Node) -> torch.Tensor:
        dtype, count = getattr(torch, node["dtype"]), math.prod(node["size"])
        if not 0 <= node["offset"] <= self.size - count * dtype.itemsize:
            raise ValueError("a tensor lies outside the arena")
        address = self._memory.address + node["offset"]
        storage = torch._C._construct_storage_from_data_pointer(address, self._device, count * dtype.itemsize)
        return torch.empty(0, dtype=dtype, device=self._device).set_(storage, 0, (count,), (1,))

    def seal(self) -> None:
        """Nothing is left to do: other processes map the memory for reading."""

    def close(self) -> None:
        torch.cuda.synchronize(self._device)  # unmapping does not wait for queued work
        self._memory.close()
        os.close(self.fd)


def created(size: int, device: str, shared: bool) -> Arena:
    """A writable arena of ``size`` bytes: in device memory where it is ``shared``, else in a memory file."""
    return DeviceArena.on(device, size) if shared else Arena.create(size)


def holding(value: Any, device: str = "cpu", shared: bool = False) -> tuple[Arena, Node]:
    """A new arena with the bytes of ``value``'s tensors, sealed against changes, and their node."""
    node, size = describe(value)
    arena = created(size, device, shared)
    arena.write(value, node)
    arena.seal()
    return arena, node


def open_arena(fd: int, size: int, device: str, shared: bool, *, writable: bool = False) -> Arena:
    """The arena behind a descriptor, of the kind that :func:`created` makes."""
    return DeviceArena.on(device, size, fd, writable=writable) if shared else Arena.open(fd, writable=writable)
