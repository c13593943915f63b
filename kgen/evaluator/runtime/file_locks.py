"""File locks, which end with their process.

A process may have a file of its own that is locked as long as the process lives. Others read its text.
"""

import fcntl
import os
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Callable, Iterator

from kgen.errors import EvaluatorError

NOTICE_SECONDS = 10.0  #: of waiting, before a notice says so
_POLL_SECONDS = {fcntl.LOCK_EX: 0.002, fcntl.LOCK_SH: 0.01}  #: between attempts; timings go first
MOST_BYTES = 1 << 10  #: of a text that others read


def wait(
    ready: Callable[[], bool],
    every: float,
    stop: threading.Event,
    name: str,
    notice: Callable[[], None] | None = None,
    after: float = NOTICE_SECONDS,
) -> None:
    """Wait until ``ready``, which is asked again after each ``every`` seconds. A wait inside a lock call would keep
    interrupts away. ``notice`` is called once, after ``after`` seconds. Raises :class:`EvaluatorError`, which names
    ``name``, when ``stop`` is set meanwhile."""
    started = time.monotonic()
    while not ready():
        if notice and time.monotonic() - started > after:
            notice()
            notice = None
        if stop.wait(every):
            raise EvaluatorError(f"{name}: not waited for any more")


@contextmanager
def held(
    path: Path,
    how: int,
    stop: threading.Event,
    notice: Callable[[], None] | None = None,
    *,
    every: float | None = None,
    after: float = NOTICE_SECONDS,
) -> Iterator[int]:
    """Hold the file lock at ``path``, whose descriptor it yields. ``every`` and ``after`` are those of :func:`wait`; a
    lock is asked for again after some milliseconds. Raises :class:`EvaluatorError` when ``stop`` is set meanwhile."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        wait(lambda: _is_locked(fd, how), every or _POLL_SECONDS[how], stop, path.name, notice, after)
        yield fd
    finally:
        os.close(fd)


def own_file(path: Path) -> int:
    """Make the file of this process, and return its descriptor. The file stays locked until the descriptor is
    closed."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def texts_of_living(stem: Path, suffix: str) -> list[str]:
    """The texts of the files of living processes. The files of others are removed."""
    found = []
    for path in stem.parent.glob(f"{stem.name}.*{suffix}"):
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _is_locked(fd, fcntl.LOCK_SH):
                    path.unlink(missing_ok=True)  # its process has ended
                else:
                    found.append(os.pread(fd, MOST_BYTES, 0).decode(errors="replace"))
            finally:
                os.close(fd)
    return found


def _is_locked(fd: int, how: int) -> bool:
    """Take a lock if it is free."""
    with suppress(BlockingIOError):
        fcntl.flock(fd, how | fcntl.LOCK_NB)
        return True
    return False
