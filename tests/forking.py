"""Fork servers without their start: one process of each worker has torch loaded, and is forked for each.

    worker of the tests ── this ── fork server of an evaluator ── its processes
                             └──── one that waits ── a command of kgen

Each server would load torch for itself, which takes most of the time of a short test. ``python forking.py ADDRESS OWNER``
serves until the process with the number ``OWNER`` ends. The first who needs it starts it, or the worker ahead of that.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

import pytest

ROOT = Path(__file__).parents[1]
_SERVER = "kgen.evaluator.runtime.server"
#: Beside what each server loads at its start: what evaluators and commands have it load later.
_MODULES = ("torch._dynamo", "kgen.evaluator.strict.subject", "kgen.compiler.capture.capture", "kgen.tuning.capturing", "torch.export._trace")
#: What commands load.
_COMMANDS = ("kgen.cli.sweep", "kgen.tuning.suite", "kgen.views.progress", "kgen.store", "alembic.context")
#: Variables that a process reads once, when it starts or loads a library.
_READ_ONCE = ("PYTHON", "OMP_", "MKL_", "KMP_", "OPENBLAS_", "GOMP_", "LD_", "TORCH_", "CUDA_", "MALLOC_")
#: Such variables that each evaluator gives its server: ``sys.path`` is set from the first, and the others are read by the server's children.
_SET_BY_SERVERS = ("PYTHONPATH", "TORCH_NO_COMPILER_WRAPPER", "OPENBLAS_THREAD_TIMEOUT")
#: Of the memory that is written between timed calls, half: PyTorch and kernels are timed alike, and most of a short sweep would be these writes.
_CACHE_BYTES = 1 << 20
_CLONE_NEWNS = 0x00020000
_PATIENCE = 120.0  #: s; to load torch


class Forked:
    """A forked fork server, with what :class:`subprocess.Popen` has for its user."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._pidfd = pidfd

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def poll(self) -> int | None:
        """Not ``None`` when it has ended. How is not known: it is no child of this process."""
        return 0 if select.select([self._pidfd], [], [], 0)[0] else None

    def wait(self) -> int:
        select.select([self._pidfd], [], [])
        return 0

    def __del__(self) -> None:
        os.close(self._pidfd)


class Command:
    """A forked command, with what :class:`subprocess.Popen` has for the tests."""

    def __init__(self, pid: int, status: int, out: int, err: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout, self.stderr = (os.fdopen(fd, encoding="utf-8") for fd in (out, err))
        self._status = os.fdopen(status, "rb")

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("kgen", timeout or 0.0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        until = None if timeout is None else time.monotonic() + timeout
        found: dict[str, str] = {}

        def read(name: str, stream: IO[str]) -> None:
            if not stream.closed:
                with stream:
                    found[name] = stream.read()

        readers = [threading.Thread(target=read, args=given, daemon=True) for given in (("out", self.stdout), ("err", self.stderr))]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(None if until is None else max(0.0, until - time.monotonic()))
        self.wait(None if until is None else max(0.0, until - time.monotonic()))
        return found.get("out", ""), found.get("err", "")

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            status = self._status.read(4)
            assert len(status) == 4, "the process that waits for the command was killed"
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status, sys.byteorder))
            self._status.close()
        return self.returncode


@dataclass(frozen=True)
class Forking:
    """Where the process that forks is found: its ``folder`` and ``owner``, and the environment in which it starts."""

    folder: Path
    owner: int
    environment: Mapping[str, str]

    @property
    def text(self) -> str:
        """For the variable ``FORKED_SERVERS``, with the variables that decide whether a server can be forked."""
        return json.dumps([str(self.folder), self.owner, _read_once(self.environment)])

    def launched(self, request: dict[str, Any], fds: Sequence[int]) -> Forked:
        answer, (pidfd,) = self._asked(request, fds)
        return Forked(answer["pid"], pidfd)

    def command(self, script: str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Command | None:
        """A Python script that runs in the folder; ``None`` where the environment has other variables that are read once."""
        if _read_once(environment) != _read_once(self.environment):
            return None
        read, write = zip(*(os.pipe() for _ in range(3)), strict=True)
        request = {"script": script, "arguments": list(arguments), "environment": dict(environment), "folder": str(folder)}
        self._asked(request, write)
        for fd in write:
            os.close(fd)
        pid = int.from_bytes(os.read(read[0], 4), sys.byteorder)
        return Command(pid, *read)

    def _asked(self, request: dict[str, Any], fds: Sequence[int]) -> tuple[dict[str, Any], list[int]]:
        from kgen.evaluator.runtime.channel import Channel

        with open(self.folder / "forking.lock", "w") as lock, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if sock.connect_ex(f"\0{self._address}"):
                self._start(sock)
            channel = Channel(sock)
            channel.send(request, fds)
            return channel.receive(time.monotonic() + _PATIENCE)

    def start(self) -> None:
        """Start the process that forks, which then loads torch."""
        with open(self.folder / "forking.lock", "w") as lock, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._start(sock)

    @property
    def _address(self) -> str:
        return f"kgen-tests-{self.owner}"

    def _start(self, sock: socket.socket) -> None:
        command = [sys.executable, __file__, self._address, str(self.owner)]
        # Without the folder of a command: what names it counts as left behind by the command.
        environment = {name: value for name, value in {**os.environ, **self.environment}.items() if not name.startswith("KGEN_")}
        started = subprocess.Popen(command, cwd=ROOT, env=environment | {"PYTHONPATH": str(ROOT)}, start_new_session=True, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while sock.connect_ex(f"\0{self._address}"):
            assert started.poll() is None, "the process that forks servers has ended"
            time.sleep(0.02)
        started.returncode = 0  # it goes on when this process ends


def fork_servers(forking: Forking) -> None:
    """From now on, have fork servers that this process starts forked.

    A server whose environment has another value of a variable that is read once, at a start, is started.
    """
    from kgen.evaluator.runtime import process

    started = process.launch

    def launch(control: int, modules: Sequence[str], log: int, environment: Mapping[str, str]) -> Any:
        if _read_once(environment) != _read_once(forking.environment):
            return started(control, modules, log, environment)
        request = {"modules": list(modules), "environment": dict(environment), "folder": os.getcwd(), "mounts": f"/proc/{os.getpid()}/ns/mnt"}
        return forking.launched(request, [control, log])

    process.launch = launch


@contextmanager
def servers_forked(folder: Path, owner: int, ahead: bool = False) -> Iterator[None]:
    """Fork servers of this process are forked, and so are those of commands that run ``brief.py``.

    Processes with the same ``folder`` and owner share the one that forks. ``ahead`` starts it now, and waits for nothing.
    """
    from kgen.evaluator.runtime import process

    forking = Forking(folder, owner, dict(os.environ))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "launch", process.launch)  # as it is now, afterwards
        patch.setenv("FORKED_SERVERS", forking.text)
        fork_servers(forking)
        if ahead:
            forking.start()
        yield


def _read_once(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_ONCE) and name not in _SET_BY_SERVERS}


def _serve(address: str, owner: int) -> None:
    """Fork on request until the owner has ended."""
    from kgen.evaluator.runtime.channel import Channel, ChannelClosed

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    owned = os.pidfd_open(owner)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0{address}")
    listener.listen()  # who asks meanwhile waits for the answer
    server = runpy.run_module(_SERVER)  # under no name, as where it is started
    server["_preload"]([*server["_PRELOAD"], *_MODULES, *_COMMANDS])
    desk = sys.modules["kgen.evaluator.correctness.desk"]
    rate = _of_a_child(desk._cpu_copy_rate)  # of the machine: each oracle would measure it, in 0.2 core-seconds
    desk._CPU_CACHE_BYTES, desk._cpu_copy_rate = _CACHE_BYTES, lambda: rate
    while listener in select.select([listener, owned], [], [])[0]:
        sock, _ = listener.accept()
        channel = Channel(sock)
        try:
            request, fds = channel.receive()
        except ChannelClosed:  # by who only started this process
            channel.close()
            continue
        pid = os.fork()
        if pid == 0:
            for own in (listener, channel):
                own.close()
            os.close(owned)
            (_be_command if "script" in request else _be_server)(request, *fds)
        pidfd = os.pidfd_open(pid)
        channel.send({"pid": pid}, [pidfd])
        for fd in (*fds, pidfd):
            os.close(fd)
        channel.close()


def _of_a_child(number: Callable[[], float]) -> float:
    """The number, worked out in a process of its own: threads that it starts would be missing after a fork."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, repr(number()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        return float(answer.read())


def _be_server(request: dict[str, Any], control: int, log: int) -> NoReturn:
    """Be the server as a process that was started: with its environment, mounts, folder, arguments and output."""
    os.setsid()
    if os.readlink(request["mounts"]) != os.readlink("/proc/self/ns/mnt"):
        with open(request["mounts"]) as namespace:
            assert ctypes.CDLL(None).setns(namespace.fileno(), _CLONE_NEWNS) == 0, "the mounts of another process cannot be entered"
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, standard in ((null, 0), (log, 1), (log, 2)):
        os.dup2(fd, standard)
    os.close(null)
    os.close(log)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    sys.argv[1:] = [str(control), *request["modules"]]
    sys.path[:] = [request["folder"], *request["environment"]["PYTHONPATH"].split(os.pathsep), *sys.path[2:]]
    try:
        runpy.run_module(_SERVER, run_name="__main__", alter_sys=True)
    except BaseException:
        traceback.print_exc()
    os._exit(0)


def _be_command(request: dict[str, Any], status: int, out: int, err: int) -> NoReturn:
    """Run the script in a process of its own, tell its number, and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        os.close(out)
        os.close(err)
        os.write(status, pid.to_bytes(4, sys.byteorder))
        os.write(status, os.waitpid(pid, 0)[1].to_bytes(4, sys.byteorder))
        os._exit(0)
    os.close(status)
    null = os.open(os.devnull, os.O_RDONLY)
    for fd, standard in ((null, 0), (out, 1), (err, 2)):
        os.dup2(fd, standard)
        os.close(fd)
    # They were opened on a file, and these are pipes.
    sys.stdout, sys.stderr = open(1, "w", encoding="utf-8"), open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv[:] = [request["script"], *request["arguments"]]
    sys.path[:] = [os.path.dirname(request["script"]), *request["environment"]["PYTHONPATH"].split(os.pathsep), *sys.path[2:]]
    code = 0
    try:
        runpy.run_path(request["script"], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
    os._exit(0)  # at once, without a second of taking modules down
