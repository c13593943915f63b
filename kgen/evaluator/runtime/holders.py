"""The commands that hold a device now, for those that wait for it.

Each process has one file for a device, locked as long as the process lives. It holds a text while the process holds the
device, and is empty otherwise.
"""

import atexit
import os
import shlex
import sys
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Iterator

from kgen.evaluator.runtime.file_locks import MOST_BYTES, own_file, texts_of_living

_SUFFIX = ".holder"
_COMMAND_CHARACTERS = 40
_own: dict[tuple[int, Path], "Holder"] = {}  # by process, since a fork has its parent's entry
_making = threading.Lock()


class Holder:
    """The file of this process for the device whose lock files begin with ``stem``."""

    def __init__(self, stem: Path) -> None:
        path = Path(f"{stem}.{uuid.uuid4().hex}{_SUFFIX}")
        self._fd = own_file(path)
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
                os.pwrite(self._fd, f"process {os.getpid()} since {since}: {_command()}".encode()[:MOST_BYTES], 0)


def holder(stem: Path) -> Holder:
    """This process's file for a device."""
    with _making:
        key = os.getpid(), stem
        if key not in _own:
            _own[key] = Holder(stem)
        return _own[key]


def others(stem: Path) -> list[str]:
    """The texts of other processes that hold the device."""
    found: list[str] = []
    with suppress(OSError):
        found = texts_of_living(stem, _SUFFIX)
    own = f"process {os.getpid()} "
    return sorted(text for text in found if text and not text.startswith(own))


def _command() -> str:
    """The command line of this process, without its folder: ``kgen sweep model.py``."""
    program = Path(sys.argv[0] if sys.argv else "")
    name = program.parent.name if program.name == "__main__.py" else program.name
    text = "".join(c if c.isprintable() else "?" for c in shlex.join([name or "python", *sys.argv[1:]]))
    return text if len(text) <= _COMMAND_CHARACTERS else f"{text[: _COMMAND_CHARACTERS - 1]}…"
