"""What is asked of the CUDA driver itself, through ``ctypes``: device memory that two processes map, events of a whole
context, and events and waits that tell times. Of torch's own events and waits a candidate may be told (by
``torch.cuda._gpu_trace``), and it may compute before they are over; of these it is not.

Memory is shared by a file descriptor (``cuMemExportToShareableHandle``), which works across PID and IPC namespaces,
where the older ``cudaIpcGetMemHandle`` does not. An event of a context is recorded behind the work of all its streams,
and a context that waits for one holds back whatever is submitted later, on any stream: measured on an H200, a wait adds
nothing to the time of a stream's own work. Every call needs a CUDA context in the calling thread.
"""

from __future__ import annotations

import ctypes
import time
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from functools import cache

import torch

_PINNED, _POSIX_FD, _DEVICE, _READ, _READ_WRITE = 1, 1, 1, 1, 3
_RECOMMENDED = 1  # granularity
_ACCESS_POLICY_WINDOW = 1  # attribute of a stream
_ATTRIBUTE_BYTES = 64

_now, _int = time.perf_counter_ns, int
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # a build for the CPU has none


class DriverError(Exception):
    """The driver refused a call; the message names it with its error number."""


class DeviceFault(RuntimeError):
    """The device reports an error of what ran on it before."""


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
    "cuCtxSetCurrent": [c_void_p],
    "cuCtxSynchronize": [],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
    "cuEventQuery": [c_void_p],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
    "cuStreamSetAttribute": [c_void_p, c_int, c_void_p],
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


def _context() -> int | None:
    context = c_void_p()
    _call("cuCtxGetCurrent", byref(context))
    return context.value


class Clock:
    """Tells how long a stream takes for what is put into it from :meth:`begin` to :meth:`end`.

    A candidate's call lies between the two. What follows it looks nothing up that the candidate could have replaced:
    the driver's functions, and all that they are given, are held from the beginning. Made in the CUDA context that it
    tells of, that of the device with that index; raises :class:`DriverError` where there is none. Methods raise
    :class:`DeviceFault` where the device, or the driver, reports an error.
    """

    def __init__(self, device: int) -> None:
        self._device, self._context = device, c_void_p(_context())
        library = _library()
        self._set_current, self._wait = library.cuCtxSetCurrent, library.cuCtxSynchronize
        self._record, self._query = library.cuEventRecord, library.cuEventQuery
        self._elapsed = library.cuEventElapsedTime
        self._set_attribute = library.cuStreamSetAttribute
        self.can_fence = all(hasattr(library, name) for name in _OF_CONTEXTS)
        if self.can_fence:
            self._hold_back, self._record_all = library.cuCtxWaitEvent, library.cuCtxRecordEvent
        self._start, self._end, self._idle = _event(), _event(), _event()
        self._no_window = (ctypes.c_ubyte * _ATTRIBUTE_BYTES)()
        self._ms = c_float()
        self._stream, self._fenced, self._begun = c_void_p(), False, 0

    def forget_window(self) -> None:
        """Have the current stream keep nothing in the L2 cache that is not asked for anew."""
        status = self._set_attribute(_current_stream(self._device), _ACCESS_POLICY_WINDOW, self._no_window)
        if status:
            raise _fault(status)

    def begin(self, *, fenced: bool) -> None:
        """Begin in the current stream. Where it is ``fenced``, nothing that is submitted from now on, on whatever
        stream, begins before."""
        self._stream, self._fenced = c_void_p(_current_stream(self._device)), fenced
        status = self._record(self._start, self._stream)
        if fenced:
            status = status or self._hold_back(self._context, self._start)
        if status:
            raise _fault(status)
        self._begun = _now()

    def end(self) -> dict[str, int | bool]:
        """End, and wait. ``ns`` is what the stream took; ``exposed`` whether it began before everything was submitted;
        ``launch_ns`` what submitting took; where it is fenced, ``behind_ns`` is how much later than the stream all
        others were done, as far as they did not begin later."""
        submitted = _now()
        status = self._record(self._end, self._stream)
        if self._fenced:
            status = status or self._record_all(self._context, self._idle)
        apart = _now() - submitted
        exposed = self._query(self._start) == 0
        self.wait()
        if status:
            raise _fault(status)
        found = {"ns": self._ns(self._end), "exposed": exposed, "launch_ns": submitted - self._begun}
        if self._fenced:
            behind = self._ns(self._idle) - found["ns"]
            # In a stream with nothing to do, an event comes when it is submitted.
            found["behind_ns"] = behind - apart if exposed else behind
        return found

    def wait(self) -> None:
        """Wait until the device is idle."""
        status = self._set_current(self._context) or self._wait()
        if status:
            raise _fault(status)

    def _ns(self, event: c_void_p) -> int:
        """From the first event to this one."""
        status = self._elapsed(self._ms, self._start, event)
        if status:
            raise _fault(status)
        return _int(self._ms.value * 1e6)


def _event() -> c_void_p:
    event = c_void_p()
    _call("cuEventCreate", byref(event), 0)
    return event


def _fault(status: int) -> DeviceFault:
    text = c_char_p()
    _library().cuGetErrorString(status, byref(text))
    return DeviceFault(f"CUDA error: {(text.value or b'unknown error').decode()}")


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
