"""Equal sweeps at once: the second one waits until the first has ended, and takes its results over."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Iterator

from kgen import paths
from kgen.errors import DiskError
from kgen.evaluator.runtime.file_locks import held
from kgen.store import codec

_POLL_SECONDS = 0.1


@contextmanager
def one_at_a_time(what: dict[str, Any], notice: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the sweep that ``what`` describes. ``notice`` receives one line where another process holds it.

    The lock ends with its process, however that ends. Raises :class:`DiskError`.
    """
    name = hashlib.sha256(codec.canonical(what).encode()).hexdigest()[:16]
    file = paths.home() / "locks" / f"sweep-{name}.lock"

    def tell() -> None:
        holder = file.read_text(errors="replace").strip() or "?"
        notice(f"an equal sweep runs already (process {holder}): waiting for its end, to take its results over")

    with ExitStack() as lock:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            waiting = held(file, fcntl.LOCK_EX, threading.Event(), tell, every=_POLL_SECONDS, after=0.0)
            fd = lock.enter_context(waiting)
        except OSError as error:
            raise DiskError(f"{file}: cannot be opened: {error.strerror or error}") from error
        os.pwrite(fd, b"%20d" % os.getpid(), 0)
        yield
