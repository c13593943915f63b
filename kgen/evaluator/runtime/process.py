"""The parent's side of the evaluator's processes: start the fork server, fork, talk to processes, end them."""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from kgen.errors import EvaluatorError
from kgen.evaluator.runtime import sandbox
from kgen.evaluator.runtime.channel import Channel, ChannelClosed, ChannelGarbage, ChannelTimeout

_MOST_FINDINGS = 50
INTERNAL_ERROR = 70  #: exit code of a process whose main function raised
_START_SECONDS = 120.0
_KILL_SECONDS = 5.0
_DEATH_SECONDS = 1.0  #: s; from the end of a channel until the exit status arrives
_LOOK_SECONDS = 0.2  #: s; between checks of the limits while a process does not answer
_END_SECONDS = 0.1  #: s; for a process that is about to end


class ChildDied(Exception):
    """The process ended before it answered; the message says how. ``for_memory``: the system's memory ran out, or its
    own limits ended it."""

    def __init__(self, how: str, *, for_memory: bool = False) -> None:
        super().__init__(how)
        self.for_memory = for_memory


def describe(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "ended for an unknown reason"
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        names = {number: number.name for number in signal.Signals}
        return f"killed by {names.get(-code, f'signal {-code}')}"
    return "ended with an error; see its log" if code == INTERNAL_ERROR else f"left with exit code {code}"


def _memory_kills() -> int:
    """How many processes the kernel has ended because memory ran out; 0 where it does not count them."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


class Family:
    """The processes below one that the server forked, as the parent sees them."""

    def __init__(self, keeper: int) -> None:
        self._keeper = keeper
        self._proc: Path | None = None
        with suppress(OSError, IndexError):  # not every kernel lists children
            first = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0]
            # The namespace's own /proc lists its processes alone, which is faster than searching all.
            inside = Path(f"/proc/{first}/root/proc")
            self._proc = inside if os.stat(inside).st_dev != os.stat("/proc").st_dev else None
        self._founders = set(self.folders())

    def folders(self) -> list[Path]:
        """The folders in /proc of all processes."""
        if self._proc is not None:
            try:
                return [self._proc / entry for entry in os.listdir(self._proc) if entry.isdigit()]
            except OSError:
                return []
        return [Path(f"/proc/{pid}") for pid in sandbox.descendants(self._keeper)]

    def new(self) -> set[Path]:
        """The folders of processes that started after this object was made."""
        return set(self.folders()) - self._founders

    def held(self) -> int:
        """Bytes of memory that all processes hold; memory that two share counts twice."""
        return sum(map(_held, self.folders()))


def _held(folder: Path) -> int:
    """Bytes that the process in ``folder`` of a /proc holds: anonymous, shared, and its open memory files."""
    total = 0
    try:
        fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        total = sum(int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))
        user = int(fields["Uid"].split()[0])
        for entry in os.listdir(folder / "fd"):
            path = folder / "fd" / entry
            if os.readlink(path).startswith("/memfd:"):
                found = os.stat(path)
                total += found.st_blocks * 512 if found.st_uid == user else 0
    except (OSError, KeyError):
        pass  # it ended, or has no memory
    return total


class Child:
    """A process that the server forked: its private channel, its log, and how it ended."""

    def __init__(self, channel: Channel, log: Path, pid: int, pidfd: int, status: int) -> None:
        self.channel = channel
        self.log = log
        self.findings: list[str] = []  # unrequested messages
        self.family: Family | None = None
        self._pid = pid
        self._pidfd = pidfd
        self._status = status
        self._ended: int | None = None
        self._closed = False
        self._most_bytes = self._most_processes = 0
        self._memory_kills = _memory_kills()

    def limit(self, more_bytes: int, processes: int) -> None:
        """From now on, end it when all its processes hold ``more_bytes`` more than now, or ``processes`` new ones run."""
        self.family = Family(self._pid)
        self._most_bytes = self.family.held() + more_bytes
        self._most_processes = processes

    def check_limits(self) -> None:
        """Raises :class:`ChildDied`, and ends the processes, when they exceed their limits."""
        if self.family is None:
            return
        new, held = len(self.family.new()), self.family.held()
        why = ""
        if new > self._most_processes:
            why = f"it started {new} processes, more than {self._most_processes}"
        elif held > self._most_bytes:
            who = f"it and the {new} processes that it started" if new else "it"
            why = f"{who} held {held / 1e9:.1f} GB of memory, more than {self._most_bytes / 1e9:.1f}"
        if why:
            self.terminate()
            raise ChildDied(f"was ended: {why}", for_memory=True)

    def ask(
        self, message: dict[str, Any], fds: Sequence[int] = (), *, deadline: float | None
    ) -> tuple[dict[str, Any], list[int]]:
        """Send ``message`` and wait for the answer until ``deadline`` (``time.monotonic()``).

        Raises :class:`ChildDied` when the process ended, and ``ChannelTimeout`` when it did not answer in time.
        """
        with self._deaths():
            self.channel.send(message, fds)
        return self.answer(deadline=deadline)

    def answer(self, *, deadline: float | None) -> tuple[dict[str, Any], list[int]]:
        """Wait for the next part of an answer, which is no finding; limits are checked meanwhile. Raises what
        :meth:`ask` does."""
        while True:
            look = time.monotonic() + _LOOK_SECONDS
            last = self.family is None or (deadline is not None and deadline <= look)
            try:
                with self._deaths():
                    message, fds = self.channel.receive(deadline if last else look)
            except ChannelTimeout:
                if last:
                    raise
                self.check_limits()
                continue
            if self.family is None or "finding" not in message:
                return message, fds
            for fd in fds:
                os.close(fd)
            self.findings.append("".join(c for c in str(message["finding"]) if c.isprintable()))
            if len(self.findings) > _MOST_FINDINGS:
                raise ChildDied("sent too many findings")

    @contextmanager
    def _deaths(self) -> Iterator[None]:
        """Turn the end of the channel into the end of the process, which may still run after garbage."""
        try:
            yield
        except (ChannelClosed, ChannelGarbage) as error:
            status = self.wait(_DEATH_SECONDS if isinstance(error, ChannelClosed) else _END_SECONDS)
            killed = status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            if killed and _memory_kills() > self._memory_kills:
                raise ChildDied(f"{describe(status)}: the system's memory ran out", for_memory=True) from error
            raise ChildDied(describe(status)) from error

    def has_ended(self) -> bool:
        """Whether the process, or the one that keeps it, is gone."""
        return self._closed or bool(select.select([self._pidfd], [], [], 0)[0])

    def wait(self, seconds: float) -> int | None:
        """The wait status of the process if it ends within ``seconds``, else ``None``."""
        if self._ended is None and not self._closed and select.select([self._status], [], [], seconds)[0]:
            data = os.read(self._status, 4)
            if len(data) == 4:
                self._ended = struct.unpack("i", data)[0]
        return self._ended

    def terminate(self) -> None:
        """Ask the process to end; another thread may be waiting for its answer."""
        if not self._closed:
            with suppress(ProcessLookupError):  # it has just ended
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)

    def kill(self) -> None:
        """End the process and everything that it started. Returns when they are gone."""
        if self._closed:
            return
        self._closed = True
        self.channel.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                break
            if select.select([self._pidfd], [], [], _KILL_SECONDS)[0]:
                break
        os.close(self._pidfd)
        os.close(self._status)

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Server:
    """The fork server, started on demand and after it died. It loads ``later`` after the first fork. Thread-safe."""

    def __init__(self, home: Path, environment: Mapping[str, str], later: Sequence[str] = ()) -> None:
        self._home = home
        self._environment = dict(environment)
        self._later = tuple(later)
        self._lock = threading.Lock()
        self._process: subprocess.Popen | None = None
        self._control: Channel | None = None
        self._ready = False
        self._closed = False

    def start(self) -> None:
        """Start the server without waiting until it has loaded torch."""
        if self._closed:
            raise EvaluatorError("the evaluator is closed: it starts nothing any more")
        mine, theirs = Channel.pair()
        folder = self._home / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        root = str(Path(__file__).resolve().parents[3])
        paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with open(folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kgen.evaluator.runtime.server", str(theirs.fileno()), *self._later],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs.fileno()], start_new_session=True,
                env=os.environ | self._environment | {"PYTHONPATH": os.pathsep.join(paths)})
        theirs.close()
        self._control, self._ready = mine, False

    def spawn(
        self, kind: str, options: Mapping[str, Any], log: Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Fork a process of ``kind`` whose output is appended to ``log``.

        Raises :class:`EvaluatorError` when the server cannot be reached; the next call starts it again.
        """
        mine, theirs = Channel.pair()
        log.parent.mkdir(parents=True, exist_ok=True)
        log_fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        request = {"kind": kind, "options": dict(options), "environment": dict(environment or {})}
        try:
            with self._lock:
                pid, pidfd = self._request(request, [theirs.fileno(), log_fd, status_write])
        except BaseException:
            mine.close()
            os.close(status_read)
            raise
        finally:
            theirs.close()
            os.close(log_fd)
            os.close(status_write)
        return Child(mine, log, pid, pidfd, status_read)

    def _request(self, request: dict[str, Any], fds: list[int]) -> tuple[int, int]:
        if self._process is None:
            self.start()
        assert self._control is not None
        deadline = time.monotonic() + _START_SECONDS
        try:
            if not self._ready:
                self._control.receive(deadline)
                self._ready = True
            self._control.send(request, fds)
            answer, (pidfd,) = self._control.receive(deadline)
            return answer["pid"], pidfd
        except (ChannelClosed, ChannelTimeout, ChannelGarbage) as error:
            self._stop()
            log = self._home / "logs" / "server.log"
            raise EvaluatorError(f"the evaluator's server does not answer ({error}); see {log}") from error

    def close(self) -> None:
        """End the server and every process that it forked, for good."""
        self._closed = True
        # Kill first: a thread that waits for the server's answer holds the lock.
        if self._process is not None:
            self._process.kill()
        with self._lock:
            self._stop()

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._control = None
