"""The parent's side of the evaluator's processes: start the fork server, fork, talk to processes, end them."""

import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

from kgen.errors import EvaluatorError
from kgen.evaluator.runtime import sandbox
from kgen.evaluator.runtime.channel import Channel, ChannelClosed, ChannelGarbage, ChannelTimeout
from kgen.evaluator.runtime.niceness import be_nicer

_MOST_FINDINGS = 50
INTERNAL_ERROR = 70  #: exit code of a process whose main function raised
_START_SECONDS = 120.0
_KILL_SECONDS = 5.0
_DEATH_SECONDS = 1.0  #: s; from the end of a channel until the exit status arrives
_LOOK_SECONDS = 0.2  #: s; between checks of the limits while a process does not answer
_END_SECONDS = 0.1  #: s; for a process that is about to end


#: Signals that others send. A process that is at fault itself ends by another one.
_FROM_OUTSIDE = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}


class ChildDied(Exception):
    """The process ended before it answered; the message says how. ``for_memory``: no memory was left, or its limit
    ended it. ``from_outside``: a signal ended it that is probably not its own fault, and that kgen did not send."""

    def __init__(self, how: str, *, for_memory: bool = False, from_outside: bool = False) -> None:
        super().__init__(how)
        self.for_memory = for_memory
        self.from_outside = from_outside


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
    with suppress(OSError):
        lines = Path("/proc/vmstat").read_text().splitlines()
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    return 0


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
            with suppress(OSError):
                return [self._proc / entry for entry in os.listdir(self._proc) if entry.isdigit()]
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
    with suppress(OSError, KeyError):  # it ended, or has no memory
        fields = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        total = sum(int(fields[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))
        user = int(fields["Uid"].split()[0])
        for entry in os.listdir(folder / "fd"):
            path = folder / "fd" / entry
            if os.readlink(path).startswith("/memfd:"):
                found = os.stat(path)
                total += found.st_blocks * 512 if found.st_uid == user else 0
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
        self.closed = False  # by :meth:`kill`
        self._ended_here = False  # whether this process has sent it a signal
        self._ending = threading.Lock()
        self._most_bytes = self._most_processes = 0
        self._memory_kills = _memory_kills()

    def limit(self, more_bytes: int, processes: int) -> None:
        """From now on, end it when all its processes hold ``more_bytes`` more than now, or ``processes`` new ones
        run."""
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
        """Send ``message`` and wait for the answer until ``deadline`` (``time.monotonic()``). Raises :class:`ChildDied`
        when the process ended, and ``ChannelTimeout`` when it did not answer in time."""
        with self._deaths():
            self.channel.send(message, fds)
        return self.answer(deadline=deadline)

    def answer(self, *, deadline: float | None) -> tuple[dict[str, Any], list[int]]:
        """Wait for the next part of an answer, which is no finding, within the limits. Raises what :meth:`ask` does."""
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
            number = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
            outside = not self._ended_here and (number in _FROM_OUTSIDE or (status is None and self.has_ended()))
            if number == signal.SIGKILL and _memory_kills() > self._memory_kills:
                how = f"{describe(status)}: the system's memory ran out"
                raise ChildDied(how, for_memory=True, from_outside=outside) from error
            raise ChildDied(describe(status), from_outside=outside) from error

    def has_ended(self) -> bool:
        """Whether the process, or the one that keeps it, is gone."""
        return self.closed or bool(select.select([self._pidfd], [], [], 0)[0])

    def wait(self, seconds: float) -> int | None:
        """The wait status of the process if it ends within ``seconds``, else ``None``."""
        if self._ended is None and not self.closed and select.select([self._status], [], [], seconds)[0]:
            data = os.read(self._status, 4)
            if len(data) == 4:
                self._ended = struct.unpack("i", data)[0]
        return self._ended

    def terminate(self) -> None:
        """Ask the process to end; another thread may be waiting for its answer."""
        if not self.closed:
            self._ended_here = True
            with suppress(ProcessLookupError):  # it has just ended
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)

    def end(self) -> bool:
        """End the process and everything that it started; its owner still closes it. Returns whether they are gone."""
        with self._ending:
            return self.closed or self._end()

    def kill(self) -> None:
        """End the process and everything that it started. Returns when they are gone."""
        with self._ending:
            if not self.closed:
                self.closed = True
                self.channel.close()
                self._end()
                os.close(self._pidfd)
                os.close(self._status)

    def _end(self) -> bool:
        self._ended_here = True
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                signal.pidfd_send_signal(self._pidfd, number)
            except ProcessLookupError:
                return True
            if select.select([self._pidfd], [], [], _KILL_SECONDS)[0]:
                return True
        return False

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def launch(control: int, modules: Sequence[str], log: int, environment: Mapping[str, str]) -> subprocess.Popen:
    """Start the fork server of a channel's descriptor, with the modules to load as its arguments, in a session of its
    own."""
    return subprocess.Popen(
        [sys.executable, "-m", "kgen.evaluator.runtime.server", str(control), *modules],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=[control],
        start_new_session=True,
        env=environment,
    )


@dataclass(frozen=True)
class _Loaded:
    """A fork server that runs: its folder and modules, and the environment in which it started."""

    what: tuple[str, ...]
    environment: Mapping[str, str]
    process: subprocess.Popen
    control: Channel

    def serves(self, what: tuple[str, ...], environment: Mapping[str, str]) -> bool:
        """Whether it can stand in for a new one. Libraries that this process loads add variables meanwhile."""
        return self.what == what and self.environment.items() <= environment.items()

    def stop(self) -> None:
        self.control.close()
        self.process.kill()
        self.process.wait()


class Server:
    """The fork server, started on demand and after it died. It loads the modules ``first`` before it forks, ``later``
    after the first fork, and ``idle`` when it is kept. Thread-safe. Closing ends it and all that it forked. Within
    :func:`servers_kept`, it waits for the next one like it. Its processes are nicer than this process by ``nice``."""

    def __init__(
        self,
        home: Path,
        environment: Mapping[str, str],
        first: Sequence[str] = (),
        later: Sequence[str] = (),
        idle: Sequence[str] = (),
        nice: int = 0,
    ) -> None:
        self.home = home
        self._environment = dict(environment)
        self._modules = [",".join(first), ",".join(later)]
        self._idle = list(idle)
        self._nice = nice
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None
        self._ready = False
        self._closed = False
        self._children: list[Child] = []

    def start(self) -> None:
        """Start the server without waiting until it has loaded torch, or take one that was kept."""
        with self._lock:  # closing waits for it, and ends the server then
            self._start()

    def _start(self) -> None:
        if self._closed:
            raise EvaluatorError("the evaluator is closed: it starts nothing any more")
        root = str(Path(__file__).resolve().parents[3])
        paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        environment = os.environ | self._environment | {"PYTHONPATH": os.pathsep.join(paths)}
        what = (os.getcwd(), str(self._nice), *self._modules)
        kept = _kept or []
        for one in [one for one in kept if one.serves(what, environment)]:
            with suppress(ValueError):  # another thread has just taken it
                kept.remove(one)
                self._loaded, self._ready = one, True
                return
        mine, theirs = Channel.pair()
        folder = self.home / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "server.log", "ab") as log:
            process = launch(theirs.fileno(), self._modules, log.fileno(), environment)
        theirs.close()
        if self._nice:
            be_nicer(self._nice, process.pid)
        self._loaded, self._ready = _Loaded(what, environment, process, mine), False

    def keep_loaded(self) -> None:
        """Start the server, have it load all its modules, and leave it to a later one like it, within
        :func:`servers_kept`. Raises what :meth:`spawn` does."""
        self._idle = [*filter(None, self._modules[1].split(",")), *self._idle]
        self.start()
        self.wait()
        self.close()

    def spawn(
        self, kind: str, options: Mapping[str, Any], log: Path, environment: Mapping[str, str] | None = None
    ) -> Child:
        """Fork a process of ``kind`` whose output is appended to ``log``. Raises :class:`EvaluatorError` when the
        server cannot be reached; the next call starts it again."""
        mine, theirs = Channel.pair()
        log.parent.mkdir(parents=True, exist_ok=True)
        log_fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        status_read, status_write = os.pipe2(os.O_CLOEXEC)
        request = {"kind": kind, "options": dict(options), "environment": dict(environment or {})}
        try:
            with self._lock, self._answering() as control:
                control.send(request, [theirs.fileno(), log_fd, status_write])
                answer, (pidfd,) = control.receive(time.monotonic() + _START_SECONDS)
                child = Child(mine, log, answer["pid"], pidfd, status_read)
                self._children = [child, *(one for one in self._children if not one.closed)]
        except BaseException:
            mine.close()
            os.close(status_read)
            raise
        finally:
            theirs.close()
            os.close(log_fd)
            os.close(status_write)
        return child

    def wait(self) -> None:
        """Wait until it has loaded its modules. Raises what :meth:`spawn` does."""
        with self._lock, self._answering():
            pass

    @contextmanager
    def _answering(self) -> Iterator[Channel]:
        """The server's channel, once it answers. Where it does not, it ends, and :class:`EvaluatorError` is raised."""
        if self._loaded is None:
            self._start()
        assert self._loaded is not None
        try:
            if not self._ready:
                self._loaded.control.receive(time.monotonic() + _START_SECONDS)
                self._ready = True
            yield self._loaded.control
        except (ChannelClosed, ChannelTimeout, ChannelGarbage) as error:
            self._stop()
            log = self.home / "logs" / "server.log"
            raise EvaluatorError(f"the evaluator's server does not answer ({error}); see {log}") from error

    def close(self) -> None:
        """End the server and every process that it forked, for good, or keep the server alone."""
        self._closed = True
        # Kill first: a thread that waits for the server's answer holds the lock.
        if self._loaded is not None and not self._keep(self._loaded):
            self._loaded.process.kill()
        with self._lock:
            self._stop()

    def _keep(self, loaded: _Loaded) -> bool:
        """Leave the process to a later server, without children. Returns whether it can serve one."""
        if _kept is None or not self._ready or not self._lock.acquire(timeout=_END_SECONDS):
            return False
        try:
            for child in self._children:
                child.terminate()
            ended = [child.end() for child in self._children]  # each of them, also behind one that does not end
            if not all(ended) or loaded.process.poll() is not None:
                return False
            with suppress(ChannelClosed):  # it has died, as the next one will see
                loaded.control.send({"kind": None, "options": {"modules": self._idle}})
            self._loaded = None
            _kept.append(loaded)
            return True
        finally:
            self._lock.release()

    def _stop(self) -> None:
        if self._loaded is not None:
            self._loaded.stop()
        self._loaded = None


_kept: list[_Loaded] | None = None  # they wait for a server like theirs; None where none is kept


@contextmanager
def servers_kept() -> Iterator[None]:
    """Within the block, the processes of closed servers serve later ones, with torch and its compiler loaded."""
    global _kept
    outer, _kept = _kept, [] if _kept is None else _kept
    try:
        yield
    finally:
        kept, _kept = _kept, outer
        for loaded in kept if outer is None else ():
            loaded.stop()
