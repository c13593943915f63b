"""Shares of a device's memory: evaluators ask for memory before they take it, and wait while others hold it.

Each share is a file that names its bytes. Its holder keeps a ``flock`` lock on the file, which ends with the holder's
process: a share whose lock is free belongs to nobody. A request holds the ``turn`` until the memory is there, so
that small ones do not overtake a large one.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Callable

from kgen.errors import EvaluatorError
from kgen.evaluator.runtime.locks import held, lock_folder

_LOOK_SECONDS = 0.2  # s; between looks whether there is room
_NOTICE_SECONDS = 1.0  # s; of waiting, before a notice says so


class Share:
    """Bytes of a device that are this process's, until :meth:`close` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.size = 0  # bytes
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def set(self, size: int) -> None:
        """Change the share to ``size`` bytes; nothing is waited for."""
        self.size = size
        os.pwrite(self._fd, b"%020d" % size, 0)

    def close(self) -> None:
        """Give the memory back."""
        self._path.unlink(missing_ok=True)
        os.close(self._fd)


def ask(
    key: str, size: int, total: int, stop: threading.Event, notice: Callable[[str], None] = lambda text: None,
    folder: Path | None = None, share: Share | None = None,
) -> Share:
    """A share of ``size`` bytes of the device ``key``, which has ``total``. A request for more than there is waits until
    nobody else holds a share.

    ``share``, which the caller holds, becomes of that size. If it has to grow, it is given back first: two that grow
    beside each other would wait for ever.

    Raises :class:`EvaluatorError` when ``stop`` is set meanwhile.
    """
    if share is not None and size <= share.size:
        share.set(size)
        return share
    if share is not None:
        share.set(0)
    folder, safe = folder or lock_folder(), re.sub(r"[^A-Za-z0-9.-]+", "_", key)
    with held(folder / f"{safe}.turn.lock", fcntl.LOCK_EX, stop):
        started, told = time.monotonic(), False
        while (taken := _taken(folder, safe)) and taken + size > total:
            if not told and time.monotonic() - started > _NOTICE_SECONDS:
                told = True
                notice(f"waiting for {size / 2**30:.0f} GiB of {key}: others hold {taken / 2**30:.0f} of {total / 2**30:.0f}")
            if stop.wait(_LOOK_SECONDS):
                raise EvaluatorError(f"{key}: its memory is not waited for any more")
        share = share or Share(folder / f"{safe}.{uuid.uuid4().hex}.share")
        share.set(size)
        return share


def _taken(folder: Path, safe: str) -> int:
    """The bytes of all shares whose holders live. The files of others are removed."""
    total = 0
    for path in folder.glob(f"{safe}.*.share"):
        with suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)  # its holder is gone
            except BlockingIOError:
                total += int(os.pread(fd, 20, 0) or 0)
            finally:
                os.close(fd)
    return total
