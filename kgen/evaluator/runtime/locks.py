"""Machine-wide locks: one timing at a time on a device, on the CPU no other work during a timing, and memory of a GPU.

Each device has two lock files. Work that would disturb a timing (builds, validation on the CPU) holds ``work`` shared;
a timing holds it alone. Work must pass ``gate``, which a waiting timing closes. Timings of one process take turns and
hand the device on: candidates that became ready together are timed before new work begins.

A share of a device's memory is a lock file that names its bytes. Evaluators ask for memory before they take it, and
wait while others hold it. A request holds the ``turn`` until the memory is there, so that small ones do not overtake a
large one.

All are ``flock`` locks: they end with their process. A share whose lock is free belongs to nobody.
"""

import fcntl
import os
import re
import tempfile
import threading
import uuid
from collections import defaultdict
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Callable, ContextManager, Iterator

from kgen.errors import DiskError, EvaluatorError
from kgen.evaluator.runtime.file_locks import held, own_file, texts_of_living, wait
from kgen.evaluator.runtime.holders import holder, others

Notice = Callable[[str], None]

_TURN_SECONDS = 0.1  #: between looks whether to give up
_LOOK_SECONDS = 0.2  #: between looks whether there is memory
_MEMORY_NOTICE_SECONDS = 1.0  #: of waiting for memory, before a notice says so
_SHARE = ".share"  #: suffix of a file that holds the bytes of a share
_KEY_CHARACTERS = 13  #: of a device's key in a notice; enough to tell the GPUs of a machine apart
_AT_ONCE = threading.Event()  #: stops a process that would have to wait
_AT_ONCE.set()


def _stem(key: str, folder: Path | None) -> Path:
    """The path of a device's lock files without their suffixes, by default in this user's machine-wide folder."""
    folder = folder or Path(tempfile.gettempdir()) / f"kgen-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise DiskError(f"{folder}: the folder for locks cannot be made: {error}") from error
    return folder / re.sub(r"[^A-Za-z0-9.-]+", "_", key)


class _Turns:
    """The timings of one device in this process, whichever evaluator they belong to."""

    def __init__(self) -> None:
        self.timings = 0  # waiting or running
        self.changed = threading.Condition()
        self.turn = threading.Lock()


_turns: defaultdict[Path, _Turns] = defaultdict(_Turns)  # by the path of a device's lock files


class DeviceLock:
    """The lock of one device; ``key`` names the device uniquely on this machine (``cpu``, or a GPU's UUID). Threads
    that wait when ``stop`` is set get :class:`EvaluatorError`."""

    def __init__(
        self, key: str, notice: Notice | None = None, folder: Path | None = None, stop: threading.Event | None = None
    ) -> None:
        self.key = key
        self.notice = notice
        self._stop = stop or threading.Event()
        stem = _stem(key, folder)
        self._stem = stem
        self._gate, self._work = Path(f"{stem}.gate.lock"), Path(f"{stem}.lock")
        self._turns = _turns[stem]

    @contextmanager
    def working(self) -> Iterator[None]:
        """Hold the right to do work that would disturb a timing."""
        turns = self._turns
        with turns.changed:
            wait(lambda: turns.changed.wait_for(lambda: not turns.timings, _TURN_SECONDS), 0.0, self._stop, self.key)
        with ExitStack() as work:
            with self._held(self._gate, fcntl.LOCK_SH):
                work.enter_context(self._held(self._work, fcntl.LOCK_SH))
            with holder(self._stem).holds():
                yield

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Hold the device alone."""
        self._count(1)
        with ExitStack() as ends:
            ends.callback(self._count, -1)
            wait(lambda: self._turns.turn.acquire(timeout=_TURN_SECONDS), 0.0, self._stop, self.key)
            ends.callback(self._turns.turn.release)
            with (
                self._held(self._gate, fcntl.LOCK_EX),
                self._held(self._work, fcntl.LOCK_EX),
                holder(self._stem).holds(),
            ):
                yield

    def _count(self, change: int) -> None:
        with self._turns.changed:
            self._turns.timings += change
            self._turns.changed.notify_all()

    def _held(self, path: Path, how: int) -> ContextManager[int]:
        notice = self.notice if how == fcntl.LOCK_EX else None
        return held(path, how, self._stop, notice and (lambda: notice(self._waiting())))

    def _waiting(self) -> str:
        """The notice of a timing that waits, with the command that holds the device."""
        first, *more = others(self._stem) or ["other work or another timing"]
        beside = f", and {len(more)} more" if more else ""
        return f"waiting for {self.key[:_KEY_CHARACTERS]}, held by {first}{beside}"


class MemoryShare:
    """Bytes of the device ``key``, which has ``total``, that are this process's until :meth:`close` or its end."""

    def __init__(
        self,
        key: str,
        total: int,
        stop: threading.Event,
        notice: Notice = lambda text: None,
        folder: Path | None = None,
    ) -> None:
        self._key = key
        self._total = total
        self._stop = stop
        self._notice = notice
        self._stem = _stem(key, folder)
        self._path = Path(f"{self._stem}.{uuid.uuid4().hex}{_SHARE}")
        self._fd: int | None = None  # of the file once there is one
        self._size = 0

    def ask(self, size: int, stop: threading.Event | None = None) -> None:
        """Hold ``size`` bytes, once others leave so many. A request for more than there is waits until nobody else
        holds a share. Raises :class:`EvaluatorError` when ``stop`` is set meanwhile, by default the process's."""
        stop = stop or self._stop
        with held(Path(f"{self._stem}.turn.lock"), fcntl.LOCK_EX, stop):
            wait(
                lambda: (others := self._taken() - self._size) == 0 or others + size <= self._total,
                _LOOK_SECONDS,
                stop,
                f"the memory of {self._key}",
                lambda: self._tell(size),
                _MEMORY_NOTICE_SECONDS,
            )
            if self._fd is None:  # in the turn, so that nobody takes it for a file that was left behind
                self._fd = own_file(self._path)
            self._set(size)

    def grows(self, size: int) -> bool:
        """Change the share to ``size`` bytes if nobody waits for memory and others leave so many. Returns whether it
        did. It never waits: a holder of memory and the processes that wait for this memory would wait for each
        other."""
        if size <= self._size:
            self._set(size)
            return True
        with suppress(EvaluatorError):
            self.ask(size, _AT_ONCE)
            return True
        return False

    def _set(self, size: int) -> None:
        self._size = size
        if self._fd is not None:
            os.pwrite(self._fd, b"%020d" % size, 0)

    def _tell(self, size: int) -> None:
        wanted, taken, total = (f"{amount / 2**30:.0f}" for amount in (size, self._taken(), self._total))
        self._notice(f"waiting for {wanted} GiB of {self._key}: others hold {taken} of {total}")

    def _taken(self) -> int:
        """The bytes of all shares whose holders live."""
        return sum(int(text or 0) for text in texts_of_living(self._stem, _SHARE))

    def close(self) -> None:
        if self._fd is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
