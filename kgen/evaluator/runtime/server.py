"""The fork server: a process that has torch loaded and forks every other process of the evaluator.

    parent ── server ── keeper ── init ── worker, oracle, baseline or build

The *keeper* leaves the server's namespaces and waits. *Init* is process 1 of the new PID namespace. It reports over a
pipe how its child ended; when init ends, the kernel kills everything in the namespace. Without namespaces the keeper
kills its descendants itself. Each process dies with its parent: killing the server or the user of the evaluator leaves
none behind.

The server never initialises CUDA: a CUDA context does not survive a fork.
"""

import gc
import importlib
import os
import signal
import struct
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import partial
from typing import Any, Callable, NoReturn, Sequence

from kgen.evaluator.runtime import sandbox
from kgen.evaluator.runtime.channel import Channel, ChannelClosed
from kgen.evaluator.runtime.niceness import be_nicer

#: The main function of each kind of process: ``module:function(channel, options)``. The option ``main`` names another
#: one.
MAINS = {
    "candidate": "kgen.evaluator.candidates.worker:main",
    "baseline": "kgen.evaluator.candidates.worker:main",
    "oracle": "kgen.evaluator.correctness.desk:main",
    "build": "kgen.evaluator.candidates.build:main",
}
_PRELOAD = (
    "torch",
    "torch.utils.cpp_extension",
    "kgen.evaluator.candidates.worker",
    "kgen.evaluator.correctness.desk",
    "kgen.evaluator.candidates.build",
)


def serve(fd: int, first: Sequence[str], later: Sequence[str]) -> None:
    """Fork on request until the parent is gone. The modules ``first`` are loaded before, ``later`` after the first
    fork."""
    control = Channel.from_fd(fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # interrupts are the parent's business
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are reaped by the kernel
    _preload([*_PRELOAD, *first])
    control.send({"ready": True})
    while True:
        try:
            request, fds = control.receive()
        except ChannelClosed:
            return
        _preload(request["options"].get("modules", ()))
        if request["kind"] is None:
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            _keep(request, fds)
        for other in fds:
            os.close(other)
        pidfd = os.pidfd_open(pid)
        control.send({"pid": pid}, [pidfd])
        os.close(pidfd)
        _preload(later)
        later = ()


def _preload(names: Sequence[str]) -> None:
    """Import modules, so that all later children share their memory."""
    missing = [name for name in names if name not in sys.modules]
    gc.disable()  # collecting takes a tenth of the time
    for name in missing:
        importlib.import_module(name)
    if missing:
        gc.collect()
        gc.freeze()
    gc.enable()


def _keep(request: dict[str, Any], fds: list[int]) -> NoReturn:
    """The keeper: put the child into namespaces of its own, and end with it. SIGTERM kills all below."""
    try:
        sandbox.die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        sandbox.adopt_orphans()
        sandboxed = bool(request["options"].get("sandboxed"))
        missing = sandbox.new_namespaces(network=sandboxed)
        channel, log, status = fds
        request["options"] |= {"user": sandbox.nameless_user(os.getpid()), "mounts": "mount namespace" not in missing}
        init = 0 if "PID namespace" in missing else os.fork()
        if init:
            for fd in fds:
                os.close(fd)
            signal.signal(signal.SIGTERM, lambda *_: os.kill(init, signal.SIGKILL))
            _wait(init)
        else:
            sandbox.die_with_parent()
            # CUDA does not start where /proc shows another PID namespace than the process's own.
            if os.getpid() == 1 and request["options"]["mounts"]:
                missing += sandbox.apply({"/proc of its own": sandbox.own_proc})
                if hidden := request["options"].get("hidden"):
                    hide = partial(sandbox.hide, hidden, request["options"]["shown"])
                    missing += sandbox.apply({"hiding kgen's folder": hide})
            _wait_for(lambda: _child(request, channel, log, status, missing), status, [channel, log])
    except BaseException:
        traceback.print_exc()
    os._exit(0)


def _wait_for(child: Callable[[], NoReturn], status: int, fds: list[int]) -> None:
    """Fork ``child``, report its wait status as four bytes, and kill what it leaves behind."""
    pid = os.fork()
    if pid == 0:
        child()
    for fd in fds:
        os.close(fd)
    signal.signal(signal.SIGTERM, lambda *_: _kill_all())
    os.write(status, struct.pack("i", _wait(pid)))
    _kill_all()


def _kill_all() -> None:
    """Kill everything below this process; for init the kernel does it."""
    if os.getpid() == 1:
        return
    while below := sandbox.descendants(os.getpid()):
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # all are reaped
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _wait(pid: int) -> int:
    """The wait status of ``pid``; other processes that end before it are reaped."""
    while True:
        ended, status = os.waitpid(-1, 0)
        if ended == pid:
            return status


def _child(request: dict[str, Any], channel: int, log: int, status: int, missing: list[str]) -> NoReturn:
    """The process itself: a session of its own, output into the log, then its main function."""
    code = 70
    try:
        sandbox.die_with_parent()
        if request["options"].get("sandboxed"):
            sandbox.no_new_privileges()  # before another thread starts
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        be_nicer(0)  # the new session, too
        os.close(status)
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, standard in ((null, 0), (log, 1), (log, 2)):
            os.dup2(fd, standard)
        os.close(null)
        os.close(log)
        os.environ.update(request.get("environment", {}))
        tempfile.tempdir = None  # the server may have asked for its own
        module, _, function = (request["options"].get("main") or MAINS[request["kind"]]).partition(":")
        main = getattr(importlib.import_module(module), function)
        main(Channel.from_fd(channel), request["options"] | {"kind": request["kind"], "missing_sandbox": missing})
        code = 0
    except ChannelClosed:
        code = 0  # the parent is gone or has closed the channel
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


if __name__ == "__main__":
    serve(int(sys.argv[1]), *(list(filter(None, names.split(","))) for names in sys.argv[2:]))
