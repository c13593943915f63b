"""The few calls of the CUDA driver that torch does not offer, through ``ctypes``: device memory that two processes map,
and events of a whole context.

Memory is shared by a file descriptor (``cuMemExportToShareableHandle``), which works across PID and IPC namespaces,
where the older ``cudaIpcGetMemHandle`` does not. An event of a context is recorded behind the work of all its streams,
and a context that waits for one holds back whatever is submitted later, on any stream: measured on an H200, a wait adds
nothing to the time of a stream's own work. Every call needs a CUDA context in the calling thread.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_int, c_size_t, c_ulonglong, c_void_p
from functools import cache

_PINNED, _POSIX_FD, _DEVICE, _READ, _READ_WRITE = 1, 1, 1, 1, 3
_RECOMMENDED = 1  # granularity


class DriverError(Exception):
    """The driver refused a call; the message names it with its error number."""


class _Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class _AllocationProp(ctypes.Structure):
    """``CUmemAllocationProp``."""

    _fields_ = [("type", c_int), ("handle_types", c_int), ("location", _Location), ("win32", c_void_p),
                ("flags", ctypes.c_ubyte * 8)]


class _AccessDesc(ctypes.Structure):
    """``CUmemAccessDesc``."""

    _fields_ = [("location", _Location), ("flags", c_int)]


_ARGUMENTS = {
    "cuMemGetAllocationGranularity": [POINTER(c_size_t), POINTER(_AllocationProp), c_int],
    "cuMemCreate": [POINTER(c_ulonglong), c_size_t, POINTER(_AllocationProp), c_ulonglong],
    "cuMemExportToShareableHandle": [POINTER(c_int), c_ulonglong, c_int, c_ulonglong],
    "cuMemImportFromShareableHandle": [POINTER(c_ulonglong), c_void_p, c_int],
    "cuMemAddressReserve": [POINTER(c_ulonglong), c_size_t, c_size_t, c_ulonglong, c_ulonglong],
    "cuMemAddressFree": [c_ulonglong, c_size_t],
    "cuMemMap": [c_ulonglong, c_size_t, c_size_t, c_ulonglong, c_ulonglong],
    "cuMemUnmap": [c_ulonglong, c_size_t],
    "cuMemSetAccess": [c_ulonglong, c_size_t, POINTER(_AccessDesc), c_size_t],
    "cuMemRelease": [c_ulonglong],
    "cuMemcpyDtoDAsync_v2": [c_ulonglong, c_ulonglong, c_size_t, c_void_p],
    "cuMemsetD8Async": [c_ulonglong, ctypes.c_ubyte, c_size_t, c_void_p],
    "cuCtxResetPersistingL2Cache": [],
    "cuCtxGetCurrent": [POINTER(c_void_p)],
}
#: Of CUDA 12.5 and later.
_OF_CONTEXTS = {"cuCtxRecordEvent": [c_void_p, c_void_p], "cuCtxWaitEvent": [c_void_p, c_void_p]}


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libcuda.so.1")
    later = {name: arguments for name, arguments in _OF_CONTEXTS.items() if hasattr(library, name)}
    for name, arguments in (_ARGUMENTS | later).items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int
    return library


def _call(name: str, *arguments: object) -> None:
    try:
        code = getattr(_library(), name)(*arguments)
    except OSError as error:
        raise DriverError(f"the CUDA driver cannot be loaded: {error}") from error
    if code:
        raise DriverError(f"{name} gives error {code}")


def copy(target: int, source: int, count: int, stream: int) -> None:
    """Copy ``count`` bytes from one device address to another, in ``stream``'s order."""
    if count:
        _call("cuMemcpyDtoDAsync_v2", target, source, count, stream)


def reset_persisting_cache() -> None:
    """Give up every line of the L2 cache that is kept for repeated access."""
    _call("cuCtxResetPersistingL2Cache")


def has_events_of_contexts() -> bool:
    """Whether the driver knows :func:`hold_back` and :func:`record_behind_all`."""
    return all(hasattr(_library(), name) for name in _OF_CONTEXTS)


def hold_back(event: int) -> None:
    """Have all work that is submitted from now on, on whatever stream, wait for ``event``."""
    _call("cuCtxWaitEvent", _context(), event)


def record_behind_all(event: int) -> None:
    """Record ``event`` behind all work that was submitted until now, on whatever stream."""
    _call("cuCtxRecordEvent", _context(), event)


def _context() -> int | None:
    context = c_void_p()
    _call("cuCtxGetCurrent", byref(context))
    return context.value


class SharedMemory:
    """Device memory that another process can map by the descriptor ``fd``.

    Raises :class:`DriverError` where the driver or the system does not allow it.
    """

    def __init__(self, handle: int, address: int, size: int, fd: int) -> None:
        self._handle = handle
        self.address = address
        self.size = size
        self.fd = fd

    @classmethod
    def create(cls, count: int, device: int) -> "SharedMemory":
        """At least ``count`` bytes on the device with that index."""
        prop, size = _AllocationProp(_PINNED, _POSIX_FD, _Location(_DEVICE, device)), _rounded(count, device)
        handle, fd = c_ulonglong(), c_int()
        _call("cuMemCreate", byref(handle), size, byref(prop), 0)
        _call("cuMemExportToShareableHandle", byref(fd), handle, _POSIX_FD, 0)
        return cls(handle.value, _map(handle, size, device, _READ_WRITE), size, fd.value)

    @classmethod
    def open(cls, fd: int, count: int, device: int, *, writable: bool) -> "SharedMemory":
        """The memory behind a descriptor, which is the result's from now on; ``count`` as it was created with."""
        handle, size = c_ulonglong(), _rounded(count, device)
        _call("cuMemImportFromShareableHandle", byref(handle), c_void_p(fd), _POSIX_FD)
        return cls(handle.value, _map(handle, size, device, _READ_WRITE if writable else _READ), size, fd)

    def fill(self, byte: int, stream: int) -> None:
        """Set every byte, in ``stream``'s order."""
        _call("cuMemsetD8Async", self.address, byte, self.size, stream)

    def close(self) -> None:
        """Unmap; the memory itself ends with its last user. The descriptor is the caller's to close."""
        _call("cuMemUnmap", self.address, self.size)
        _call("cuMemAddressFree", self.address, self.size)
        _call("cuMemRelease", self._handle)


def _rounded(count: int, device: int) -> int:
    granularity = c_size_t()
    prop = _AllocationProp(_PINNED, _POSIX_FD, _Location(_DEVICE, device))
    _call("cuMemGetAllocationGranularity", byref(granularity), byref(prop), _RECOMMENDED)
    return max(1, -(-count // granularity.value)) * granularity.value


def _map(handle: c_ulonglong, size: int, device: int, rights: int) -> int:
    address = c_ulonglong()
    _call("cuMemAddressReserve", byref(address), size, 0, 0, 0)
    _call("cuMemMap", address, size, 0, handle, 0)
    access = _AccessDesc(_Location(_DEVICE, device), rights)
    _call("cuMemSetAccess", address, size, byref(access), 1)
    return address.value
