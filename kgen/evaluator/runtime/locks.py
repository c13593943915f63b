"""Machine-wide locks: one timing at a time on a device, and on the CPU no other work during a timing.

Each device has two lock files. Work that would disturb a timing (builds, validation on the CPU) holds ``work`` shared;
a timing holds it alone. Work must pass ``gate``, which a waiting timing closes. Timings of one process take turns and
hand the device on: candidates that became ready together are timed before new work begins. The locks are ``flock``
locks: they end with their process.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Callable, ContextManager, Iterator

from kgen.errors import DiskError, EvaluatorError

_POLL_SECONDS = {fcntl.LOCK_EX: 0.002, fcntl.LOCK_SH: 0.01}  #: between attempts; timings go first
_TURN_SECONDS = 0.1  #: between looks whether to give up
_NOTICE_SECONDS = 10.0


def lock_folder() -> Path:
    """The machine-wide folder of this user's locks."""
    folder = Path(tempfile.gettempdir()) / f"kgen-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise DiskError(f"{folder}: the folder for locks cannot be made: {error}") from error
    return folder


@contextmanager
def held(
    path: Path, how: int, stop: threading.Event, notice: Callable[[], None] | None = None
) -> Iterator[int]:
    """Hold the file lock at ``path``, whose descriptor it yields. Polls, so that an interrupt gets through.

    ``notice`` is called once after some seconds. Raises :class:`EvaluatorError` when ``stop`` is set meanwhile.
    """
    fd, started = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), time.monotonic()
    try:
        while not _is_locked(fd, how):
            if notice and time.monotonic() - started > _NOTICE_SECONDS:
                notice()
                notice = None
            if stop.wait(_POLL_SECONDS[how]):
                raise EvaluatorError(f"{path.name}: not waited for any more")
        yield fd
    finally:
        os.close(fd)


def _is_locked(fd: int, how: int) -> bool:
    """Take a lock if it is free."""
    with suppress(BlockingIOError):
        fcntl.flock(fd, how | fcntl.LOCK_NB)
        return True
    return False


class DeviceLock:
    """The lock of one device; ``key`` names the device uniquely on this machine (``cpu``, or a GPU's UUID).

    Threads that wait when ``stop`` is set get :class:`EvaluatorError`.
    """

    def __init__(
        self, key: str, notice: Callable[[str], None] | None = None, folder: Path | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.key = key
        self.notice = notice
        self._stop = stop or threading.Event()
        safe = re.sub(r"[^A-Za-z0-9.-]+", "_", key)
        folder = folder or lock_folder()
        self._gate = folder / f"{safe}.gate.lock"
        self._work = folder / f"{safe}.lock"
        self._timings = 0  # of this process, waiting or running
        self._changed = threading.Condition()
        self._turn = threading.Lock()  # of this process's timings

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold the right to do work that would disturb a timing."""
        with self._changed:
            self._await(lambda: self._changed.wait_for(lambda: not self._timings, _TURN_SECONDS))
        with ExitStack() as work:
            with self._held(self._gate, fcntl.LOCK_SH):
                work.enter_context(self._held(self._work, fcntl.LOCK_SH))
            yield

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Hold the device alone."""
        self._count(1)
        with ExitStack() as ends:
            ends.callback(self._count, -1)
            self._await(lambda: self._turn.acquire(timeout=_TURN_SECONDS))
            ends.callback(self._turn.release)
            with self._held(self._gate, fcntl.LOCK_EX), self._held(self._work, fcntl.LOCK_EX):
                yield

    def _count(self, change: int) -> None:
        with self._changed:
            self._timings += change
            self._changed.notify_all()

    def _await(self, take: Callable[[], bool]) -> None:
        """Wait until ``take``, which tries for a moment, succeeds."""
        while not take():
            if self._stop.is_set():
                raise EvaluatorError(f"{self.key}: not waited for any more")

    def _held(self, path: Path, how: int) -> ContextManager[int]:
        waiting = f"waiting for {self.key}: other work or another timing holds it"
        notice = self.notice if how == fcntl.LOCK_EX else None
        return held(path, how, self._stop, notice and partial(notice, waiting))
