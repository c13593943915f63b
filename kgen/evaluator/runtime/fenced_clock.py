"""A clock that also sees work outside the timed stream.

An event of a whole context (CUDA 12.5) is recorded behind the work of all its streams. A context that waits for an
event holds back later work of every stream. The wait adds nothing to the time of the
stream's own work (measured on an H200).
"""

import ctypes
import time
from typing import Any, Callable, Sequence

from kgen.evaluator.runtime import driver
from kgen.evaluator.runtime.driver import Clock

_ACCESS_POLICY_WINDOW = 1  # attribute of a stream
_ATTRIBUTE_BYTES = 64
_now = time.perf_counter_ns


class FencedClock(Clock):
    """A :class:`Clock` that can fence a call off from other streams. ``can_fence`` is false before CUDA 12.5."""

    def __init__(self, device: int) -> None:
        super().__init__(device)
        library = driver._library()
        self._set_attribute = library.cuStreamSetAttribute
        self._reset_cache = library.cuCtxResetPersistingL2Cache
        self.can_fence = all(hasattr(library, name) for name in driver._OF_CONTEXTS)
        if self.can_fence:
            self._hold_back, self._record_all = library.cuCtxWaitEvent, library.cuCtxRecordEvent
        self._idle = driver._event()
        self._no_window = (ctypes.c_ubyte * _ATTRIBUTE_BYTES)()
        self._begun = 0
        self._current_stream, self._raise_fault = driver._current_stream, driver._raise_fault

    def reset_persisting_cache(self) -> None:
        """Free every line of the L2 cache that is reserved for repeated access."""
        self._raise_fault(self._reset_cache())

    def forget_window(self) -> None:
        """Remove the current stream's access policy window, which would keep lines in the L2 cache."""
        stream = self._current_stream(self._device)
        self._raise_fault(self._set_attribute(stream, _ACCESS_POLICY_WINDOW, self._no_window))

    def timed(
        self, call: Callable[..., Any], given: Sequence[Any], *, fenced: bool = True
    ) -> tuple[Any, dict[str, int | bool]]:
        self.begin(fenced=fenced)
        found = call(*given)
        return found, self.end()

    def begin(self, *, fenced: bool = True) -> None:
        """Record the first event in the current stream. Where it is ``fenced``, work that any stream gets from now on
        starts after it."""
        super().begin()
        if fenced and self.can_fence:
            self._raise_fault(self._hold_back(self._context, self._start))
        self._begun = _now()

    def end(self) -> dict[str, int | bool]:
        """Like the base class, with ``launch_ns``, the time that submitting took. ``behind_ns`` says how much later
        than the stream the device was idle."""
        submitted = _now()
        status = self._record(self._end, self._stream)
        if self.can_fence:
            status = status or self._record_all(self._context, self._idle)
        apart = _now() - submitted
        exposed = self._query(self._start) == 0
        self.wait()
        self._raise_fault(status)
        found = {"ns": self._ns(self._end), "exposed": exposed, "launch_ns": submitted - self._begun}
        if self.can_fence:
            behind = self._ns(self._idle) - found["ns"]
            # In an idle stream an event passes when it is submitted, one after the other.
            found["behind_ns"] = behind - apart if exposed else behind
        return found
