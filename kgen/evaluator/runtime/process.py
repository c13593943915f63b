"""The parent's side of the evaluator's processes: start the fork server, have it fork, talk to them, end them."""

from __future__ import annotations

import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from kgen.errors import EvaluatorError
from kgen.evaluator.runtime import sandbox
from kgen.evaluator.runtime.channel import Channel, ChannelClosed, ChannelGarbage, ChannelTimeout

_MOST_FINDINGS = 50
_START_SECONDS = 120.0
_KILL_SECONDS = 5.0
_DEATH_SECONDS = 1.0  #: from when a channel closes until it is known how the process ended
_LOOK_SECONDS = 0.2  #: how often the memory of a process that does not answer is looked at
_SETTLE_SECONDS, _SETTLE_STEP_SECONDS = 0.5, 0.003
_ASLEEP = 0.1  #: of one processor's time, at most, is what threads that sleep use
_WAKE_SECONDS = 0.03
_END_SECONDS = 0.1  #: what a process that was told to end, or is about to, may take to be gone


class ChildDied(Exception):
    """The process ended before it answered; ``status`` is its wait status, ``None`` where nobody knows, ``for_memory``
    whether the system ended it because memory ran out."""

    def __init__(self, status: int | None, *, for_memory: bool = False) -> None:
        super().__init__(describe(status))
        self.status = status
        self.for_memory = for_memory


class MemoryExceeded(Exception):
    """The process and what it started hold more memory than they may; the message says how much."""


def describe(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "ended for an unknown reason"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"left with exit code {os.waitstatus_to_exitcode(status)}"


def _memory_kills() -> int:
    """How many processes the kernel has ended so far because memory ran out; 0 where it does not tell."""
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
        first = _first_child(keeper)
        if first is not None:
            # A /proc of the namespace's own lists nobody else, which is quicker than to look through all processes.
            inside = Path(f"/proc/{first}/root/proc")
            try:
                self._proc = inside if os.stat(inside).st_dev != os.stat("/proc").st_dev else None
            except OSError:
                pass
        self._founders = set(self._folders())

    def _folders(self) -> list[Path]:
        if self._proc is not None:
            try:
                return [self._proc / entry for entry in os.listdir(self._proc) if entry.isdigit()]
            except OSError:
                return []
        return [Path(f"/proc/{pid}") for pid in sandbox.descendants(self._keeper)]

    def strangers(self) -> list[str]:
        """The names of processes that live, and did not when this was made."""
        found = []
        for folder in set(self._folders()) - self._founders:
            try:
                name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue
            if rest.split()[0] not in "ZX":
                found.append(name)
        return sorted(found)

    def processor_ms(self) -> float:
        """The time that the processes' threads have run on a processor so far, in milliseconds."""
        ns = 0
        for task in (task for folder in self._folders() for task in folder.glob("task/*/schedstat")):
            try:
                ns += int(task.read_text().split()[0])
            except (OSError, IndexError):
                continue
        return ns / 1e6

    def wakeups(self) -> int:
        """How often the processes' threads have been given a processor so far."""
        found = 0
        for status in (status for folder in self._folders() for status in folder.glob("task/*/status")):
            try:
                lines = status.read_text().splitlines()
            except OSError:
                continue
            found += sum(int(line.partition(":")[2]) for line in lines if "ctxt_switches" in line)
        return found

    def held(self) -> tuple[int, int]:
        """How many new processes there are, and the bytes of memory that all of them hold; what two share counts
        twice."""
        folders = self._folders()
        return len(set(folders) - self._founders), sum(map(_held, folders))


def _first_child(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
    except (OSError, IndexError):  # many kernels list children, not all
        return next(iter(sandbox.descendants(pid)), None)


def _held(folder: Path) -> int:
    """The bytes of memory that the process in ``folder`` of a /proc holds, but for those of files on disks; files in
    memory that it made and has open among them."""
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
        pass  # it ended, or is a process without memory
    return total


class Child:
    """A process that the server forked: its private channel, and how it ended."""

    def __init__(self, channel: Channel, pid: int, pidfd: int, status: int) -> None:
        self.channel = channel
        self.findings: list[str] = []  # what the process said unasked
        self._pid = pid
        self._pidfd = pidfd
        self._status = status
        self._ended: int | None = None
        self._closed = False
        self._family: Family | None = None
        self._most_bytes = 0
        self._memory_kills = _memory_kills()

    def watch(self, most_bytes: int) -> None:
        """From now on, know which processes below this one are new, and end them all when they hold ``most_bytes`` of
        memory more than now."""
        self._family = Family(self._pid)
        self._most_bytes = self._family.held()[1] + most_bytes

    def settle(self) -> tuple[float, int] | None:
        """What the process and what it started do when nothing is asked of them any more: the milliseconds until
        their threads sleep, and how often one wakes up afterwards. ``None`` where nobody watches."""
        if self._family is None:
            return None
        started = time.monotonic()
        used = self._family.processor_ms()
        while time.monotonic() - started < _SETTLE_SECONDS:
            time.sleep(_SETTLE_STEP_SECONDS)
            before, used = used, self._family.processor_ms()
            if used - before < 1000 * _SETTLE_STEP_SECONDS * _ASLEEP:
                break
        took, awake = time.monotonic() - started, self._family.wakeups()
        time.sleep(_WAKE_SECONDS)
        return 1000 * took, self._family.wakeups() - awake

    def look_at_memory(self) -> None:
        """Raises :class:`MemoryExceeded`, and ends the processes, where they hold too much."""
        if self._family is None:
            return
        new, held = self._family.held()
        if held > self._most_bytes:
            self.terminate()
            who = f"it and the {new} processes that it started" if new else "it"
            raise MemoryExceeded(f"{who} held {held / 1e9:.1f} GB of memory, more than {self._most_bytes / 1e9:.1f}")

    def strangers(self) -> list[str]:
        """The names of the processes that were started since :meth:`watch` and still live."""
        if self._family is None or not self._family.strangers():
            return []
        time.sleep(_END_SECONDS)
        return self._family.strangers()

    def ask(
        self, message: dict[str, Any], fds: Sequence[int] = (), *, deadline: float | None
    ) -> tuple[dict[str, Any], list[int]]:
        """Send ``message`` and wait for the answer until ``deadline`` (``time.monotonic()``).

        Raises :class:`ChildDied` when the process ended, ``ChannelTimeout`` when it did not answer in time, and
        :class:`MemoryExceeded` when it was ended because of its memory.
        """
        with self._deaths():
            self.channel.send(message, fds)
            return self._answer(deadline)

    def answer(self, *, deadline: float | None) -> tuple[dict[str, Any], list[int]]:
        """Wait for the next part of an answer; raises what :meth:`ask` does."""
        with self._deaths():
            return self._answer(deadline)

    @contextmanager
    def _deaths(self) -> Iterator[None]:
        """What a channel that ends says of its process."""
        try:
            yield
        except ChannelClosed as error:
            raise self._death(_DEATH_SECONDS) from error
        except ChannelGarbage as error:  # from a process that may well live on
            raise self._death(_END_SECONDS) from error

    def _death(self, seconds: float) -> ChildDied:
        status = self.wait(seconds)
        killed = status is not None and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        return ChildDied(status, for_memory=killed and _memory_kills() > self._memory_kills)

    def _answer(self, deadline: float | None) -> tuple[dict[str, Any], list[int]]:
        """The next message that is no finding; while it does not come, the process's memory is looked at."""
        while True:
            look = time.monotonic() + _LOOK_SECONDS
            last = self._family is None or (deadline is not None and deadline <= look)
            try:
                message, fds = self.channel.receive(deadline if last else look)
            except ChannelTimeout:
                if last:
                    raise
                self.look_at_memory()
                continue
            if self._family is None or "finding" not in message:
                return message, fds
            self._keep(message["finding"], fds)

    def _keep(self, finding: Any, fds: list[int]) -> None:
        for fd in fds:
            os.close(fd)
        if len(self.findings) == _MOST_FINDINGS:
            raise ChannelGarbage("more findings than there are")
        self.findings.append("".join(c for c in str(finding) if c.isprintable()))

    def wait(self, seconds: float) -> int | None:
        """The wait status of the process, if it ends within ``seconds``."""
        if self._ended is None and not self._closed and select.select([self._status], [], [], seconds)[0]:
            data = os.read(self._status, 4)
            if len(data) == 4:
                self._ended = struct.unpack("i", data)[0]
        return self._ended

    def terminate(self) -> None:
        """Have the process end soon; may be called while another thread waits for its answer."""
        if not self._closed:
            signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)

    def kill(self) -> None:
        """End the process and everything that it started; returns when they are gone."""
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
    """The fork server, started on demand and started again when it died; it loads the modules ``later`` when it has
    forked once. Thread-safe."""

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
        with self._lock:
            self._check_open()
            self._start()

    def _check_open(self) -> None:
        if self._closed:
            raise EvaluatorError("the evaluator is closed: it starts nothing any more")

    def _start(self) -> None:
        mine, theirs = Channel.pair()
        folder = self._home / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        root = str(Path(__file__).resolve().parents[3])
        paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        with open(folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kgen.evaluator.runtime.server", str(theirs.fileno()), *self._later],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=[theirs.fileno()], start_new_session=True,
                env=os.environ | self._environment | {"PYTHONPATH": os.pathsep.join(paths)},
            )
        theirs.close()
        self._control, self._ready = mine, False

    def spawn(
        self, kind: str, options: Mapping[str, Any], log: Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Fork a process of ``kind`` whose output is appended to ``log``.

        Raises :class:`EvaluatorError` when the server cannot be reached; it is started anew for the next call.
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
        return Child(mine, pid, pidfd, status_read)

    def _request(self, request: dict[str, Any], fds: list[int]) -> tuple[int, int]:
        self._check_open()
        if self._process is None:
            self._start()
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
        """End the server, and with it every process that it forked; it is not started again."""
        self._closed = True
        # Killed before the lock is taken: a thread that waits for the server's answer holds it.
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
