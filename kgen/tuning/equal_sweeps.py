"""Equal sweeps at once: the second one waits until the first has ended, and takes its results over."""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, Iterator

from kgen import paths
from kgen.errors import DiskError
from kgen.store import codec

_POLL_SECONDS = 0.1


@contextmanager
def one_at_a_time(what: dict[str, Any], notice: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the sweep that ``what`` describes. ``notice`` receives one line where another process holds it.

    The lock ends with its process, however that ends. Raises :class:`DiskError`.
    """
    name = hashlib.sha256(codec.canonical(what).encode()).hexdigest()[:16]
    file = paths.home() / "locks" / f"sweep-{name}.lock"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise DiskError(f"{file}: cannot be opened: {error.strerror or error}") from error
    try:
        if not _is_taken(fd):
            holder = os.pread(fd, 20, 0).decode(errors="replace").strip() or "?"
            notice(f"an equal sweep runs already (process {holder}): waiting for its end, to take its results over")
            while not _is_taken(fd):
                time.sleep(_POLL_SECONDS)
        os.pwrite(fd, b"%20d" % os.getpid(), 0)
        yield
    finally:
        os.close(fd)


def _is_taken(fd: int) -> bool:
    """Take the lock if it is free."""
    with suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
