"""The commands that hold a device now, for those that wait for it.

Each process has one file for a device, locked as long as the process lives. It holds a text while the process holds the
device, and is empty otherwise.
"""

import atexit
import fcntl
import os
import shlex
import sys
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator

_COMMAND_CHARACTERS = 40
_MOST_BYTES = 1 << 10  #: of a text
_own: dict[tuple[int, Path], "Holder"] = {}  # by process, since a fork has another one's
_making = threading.Lock()


class Holder:
    """The file of this process for the device whose lock files begin with ``stem``."""

    def __init__(self, stem: Path) -> None:
        path = Path(f"{stem}.{uuid.uuid4().hex}.holder")
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        atexit.register(path.unlink, missing_ok=True)
        self._count, self._changing = 0, threading.Lock()

    @contextmanager
    def holds(self) -> Iterator[None]:
        """Say meanwhile that this command holds the device."""
        self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def _add(self, change: int) -> None:
        with self._changing:
            self._count += change
            if self._count == 0:
                os.ftruncate(self._fd, 0)
            elif self._count == change:
                since = time.strftime("%H:%M:%S")
                os.pwrite(self._fd, f"process {os.getpid()} since {since}: {_command()}".encode()[:_MOST_BYTES], 0)


def holder(stem: Path) -> Holder:
    """This process's file for a device."""
    with _making:
        key = os.getpid(), stem
        if key not in _own:
            _own[key] = Holder(stem)
        return _own[key]


def others(stem: Path) -> list[str]:
    """The texts of other processes that hold the device. The files of processes that have ended are removed."""
    found = []
    for path in stem.parent.glob(f"{stem.name}.*.holder"):
        with suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _is_free(fd):
                    path.unlink(missing_ok=True)
                elif text := os.pread(fd, _MOST_BYTES, 0).decode(errors="replace"):
                    found.append(text)
            finally:
                os.close(fd)
    own = f"process {os.getpid()} "
    return sorted(text for text in found if not text.startswith(own))


def _is_free(fd: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


def _command() -> str:
    """The command line of this process, without its folder: ``kgen sweep model.py``."""
    program = Path(sys.argv[0] if sys.argv else "")
    name = program.parent.name if program.name == "__main__.py" else program.name
    text = "".join(c if c.isprintable() else "?" for c in shlex.join([name or "python", *sys.argv[1:]]))
    return text if len(text) <= _COMMAND_CHARACTERS else f"{text[: _COMMAND_CHARACTERS - 1]}…"
