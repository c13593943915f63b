"""Calls of the CUDA driver through ``ctypes``: device memory that two processes map, and events that measure time.

The driver's own events and waits are used because torch reports its own to listeners (``torch.cuda._gpu_trace``),
which a candidate may be. Memory is shared by a file descriptor (``cuMemExportToShareableHandle``), which works across
PID and IPC namespaces; ``cudaIpcGetMemHandle`` does not. Every call needs a CUDA context in the calling thread.
"""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from functools import cache
from typing import Any, Callable, Sequence

import torch

_PINNED, _POSIX_FD, _DEVICE, _READ, _READ_WRITE = 1, 1, 1, 1, 3
_RECOMMENDED = 1  # granularity
_UNWRITTEN = 0xFF  #: four such bytes are a NaN
_OUT_OF_MEMORY = 2

_int = int
wait_for, free_cached = torch.cuda.synchronize, torch.cuda.empty_cache
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # a build for the CPU has none


class DriverError(Exception):
    """The driver refused a call; the message names it with its error number."""


class DeviceFault(RuntimeError):
    """The device reports an error of earlier work."""


class _Location(ctypes.Structure):
    _fields_ = [("type", c_int), ("id", c_int)]


class _AllocationProp(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = [
        ("type", c_int),
        ("handle_types", c_int),
        ("location", _Location),
        ("win32", c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    ]


class _AccessDesc(ctypes.Structure):  # CUmemAccessDesc
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
    "cuMemsetD8Async": [c_ulonglong, ctypes.c_ubyte, c_size_t, c_void_p],
    "cuCtxResetPersistingL2Cache": [],
    "cuCtxGetCurrent": [POINTER(c_void_p)],
    "cuCtxSetCurrent": [c_void_p],
    "cuCtxSynchronize": [],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
    "cuEventQuery": [c_void_p],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
    "cuStreamSetAttribute": [c_void_p, c_int, c_void_p],
}
#: CUDA 12.5 and later.
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
    if code == _OUT_OF_MEMORY:
        raise torch.OutOfMemoryError(f"CUDA out of memory in {name}")
    if code:
        raise DriverError(f"{name} gives error {code}")


class Clock:
    """Times the work that a stream gets between :meth:`begin` and :meth:`end`. A candidate's call lies between the two.
    So the driver's functions and their arguments are bound beforehand: nothing is looked up that the candidate could
    have replaced. Make it in the CUDA context of the device with that index; raises :class:`DriverError` without one.
    Methods raise :class:`DeviceFault` when the device or the driver reports an error."""

    def __init__(self, device: int) -> None:
        self._device, self._context = device, c_void_p()
        _call("cuCtxGetCurrent", byref(self._context))
        library = _library()
        self._set_current, self._wait = library.cuCtxSetCurrent, library.cuCtxSynchronize
        self._record, self._query = library.cuEventRecord, library.cuEventQuery
        self._elapsed = library.cuEventElapsedTime
        self._start, self._end = _event(), _event()
        self._ms = c_float()
        self._stream = c_void_p()

    def timed(self, call: Callable[..., Any], given: Sequence[Any]) -> tuple[Any, dict[str, int | bool]]:
        """Time one call. Returns its result, and the answer of :meth:`end`."""
        self.begin()
        found = call(*given)
        return found, self.end()

    def begin(self) -> None:
        """Record the first event in the current stream."""
        self._stream = c_void_p(_current_stream(self._device))
        _raise_fault(self._record(self._start, self._stream))

    def end(self) -> dict[str, int | bool]:
        """Record the last event and wait. ``ns``: the time between both; ``exposed``: whether it has launches in it."""
        status = self._record(self._end, self._stream)
        exposed = self._query(self._start) == 0
        self.wait()
        _raise_fault(status)
        return {"ns": self._ns(self._end), "exposed": exposed}

    def wait(self) -> None:
        """Wait until the device is idle."""
        _raise_fault(self._set_current(self._context) or self._wait())

    def _ns(self, event: c_void_p) -> int:
        """Nanoseconds from the first event to ``event``."""
        _raise_fault(self._elapsed(self._ms, self._start, event))
        return _int(self._ms.value * 1e6)


def _event() -> c_void_p:
    event = c_void_p()
    _call("cuEventCreate", byref(event), 0)
    return event


def _raise_fault(status: int) -> None:
    """Raise :class:`DeviceFault` unless ``status`` is success."""
    if status:
        text = c_char_p()
        _library().cuGetErrorString(status, byref(text))
        raise DeviceFault(f"CUDA error: {(text.value or b'unknown error').decode()}")


@dataclass(frozen=True)
class SharedMemory:
    """Device memory that another process can map by the descriptor ``fd``. Raises :class:`DriverError` where the driver
    or the system does not allow it, and ``torch.OutOfMemoryError``."""

    handle: int
    address: int
    size: int
    fd: int

    @classmethod
    def at(cls, device: int, count: int, fd: int | None = None, *, writable: bool = True) -> "SharedMemory":
        """At least ``count`` new bytes on the device with that index, which will all be NaN. With ``fd``, the memory
        behind that descriptor, which was created with the same ``count``. The descriptor belongs to the result from now
        on."""
        prop, granularity = _AllocationProp(_PINNED, _POSIX_FD, _Location(_DEVICE, device)), c_size_t()
        _call("cuMemGetAllocationGranularity", byref(granularity), byref(prop), _RECOMMENDED)
        size = max(1, -(-count // granularity.value)) * granularity.value
        handle, address, made = c_ulonglong(), c_ulonglong(), c_int()
        if fd is None:
            _call("cuMemCreate", byref(handle), size, byref(prop), 0)
            _call("cuMemExportToShareableHandle", byref(made), handle, _POSIX_FD, 0)
        else:
            _call("cuMemImportFromShareableHandle", byref(handle), c_void_p(fd), _POSIX_FD)
        _call("cuMemAddressReserve", byref(address), size, 0, 0, 0)
        _call("cuMemMap", address, size, 0, handle, 0)
        access = _AccessDesc(_Location(_DEVICE, device), _READ_WRITE if writable else _READ)
        _call("cuMemSetAccess", address, size, byref(access), 1)
        if fd is None:
            _call("cuMemsetD8Async", address, _UNWRITTEN, size, None)
        return cls(handle.value, address.value, size, made.value if fd is None else fd)

    def close(self) -> None:
        """Unmap; the memory itself ends with its last user. The descriptor is the caller's to close."""
        _call("cuMemUnmap", self.address, self.size)
        _call("cuMemAddressFree", self.address, self.size)
        _call("cuMemRelease", self.handle)
