"""Sweeps of a suite beside each other, each in a process of its own.

    suite -> run(request) -> [process: sweep] -> events, result

The processes run on this machine and write to its store. They capture and render, which takes seconds of a core for
each problem, and keep what they have imported for the next one.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any, Callable, TypeAlias

from kgen.errors import EvaluatorError, KgenError
from kgen.evaluator.runtime.process import servers_kept
from kgen.evaluator.runtime.sandbox import die_with_parent
from kgen.tuning import events, sweep
from kgen.tuning.sweep import SweepRequest

_END_SECONDS = 10.0  # of a process that was asked to end

Run: TypeAlias = Callable[[SweepRequest, events.Listener], events.Finished]  #: runs one sweep


def here() -> Run:
    """Runs sweeps on this machine's devices. Timings on one device take turns."""
    return sweep.run


@dataclass(eq=False)
class _Conductor:
    """A process that runs one sweep at a time."""

    process: BaseProcess
    pipe: Connection


class SideBySide:
    """Runs up to ``at_once`` sweeps of a suite in processes; see :class:`kgen.tuning.suite.Sweeps`.

    Each process calls ``begin`` once, for what it runs sweeps with; it must be picklable. ``changed`` is called with
    the number of sweeps that run. A context manager: leaving ends the processes.
    """

    def __init__(
        self, at_once: int, begin: Callable[[], Run] = here, changed: Callable[[int], None] = lambda running: None
    ) -> None:
        self.at_once = at_once
        self._begin = begin
        self._changed = changed
        self._free: SimpleQueue[_Conductor] = SimpleQueue()
        self._busy: set[_Conductor] = set()
        self._all: set[_Conductor] = set()

    def __enter__(self) -> "SideBySide":
        for _ in range(self.at_once):
            self._free.put(self._conductor())
        return self

    def __exit__(self, *_: object) -> None:
        for conductor in self._all:
            conductor.pipe.close()
        for conductor in self._all:
            conductor.process.join(_END_SECONDS)
            conductor.process.kill()

    def run(self, request: SweepRequest, on_event: events.Listener) -> events.Finished:
        """Run a sweep in a process that is free, and tell its events. Raises what it raises."""
        conductor = self._free.get()
        self._busy.add(conductor)
        self._changed(len(self._busy))
        try:
            return self._ended(conductor, request, on_event)
        finally:
            self._busy.discard(conductor)
            self._free.put(conductor if conductor.process.is_alive() else self._conductor())
            self._changed(len(self._busy))

    def _ended(self, conductor: _Conductor, request: SweepRequest, on_event: events.Listener) -> events.Finished:
        try:
            conductor.pipe.send(request)
            while (answer := conductor.pipe.recv())[0] == "event":
                on_event(answer[1])
        except (EOFError, OSError) as error:
            conductor.process.join(_END_SECONDS)
            raise EvaluatorError("the process of this sweep died; the same command continues it") from error
        if answer[0] == "error":
            raise answer[1]
        return answer[1]

    def interrupt(self) -> None:
        """Have all sweeps end as an interrupt ends them."""
        for conductor in list(self._busy):
            if conductor.process.pid is not None and conductor.process.is_alive():
                os.kill(conductor.process.pid, signal.SIGINT)

    def _conductor(self) -> _Conductor:
        mine, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=_conduct, args=(theirs, self._begin), daemon=True)
        process.start()
        theirs.close()
        self._all.add(conductor := _Conductor(process, mine))
        return conductor


def _conduct(pipe: Connection, begin: Callable[[], Run]) -> None:
    """The process: sweep after sweep until the pipe is closed."""
    die_with_parent()
    os.setsid()  # Ctrl-C reaches the parent alone, which tells its processes
    try:
        run = begin()
        with servers_kept():
            while True:
                pipe.send(_swept(pipe.recv(), pipe, run))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _swept(request: SweepRequest, pipe: Connection, run: Run) -> tuple[str, Any]:
    """Run one sweep. Returns its result, or the error that it raised in a form that goes through a pipe."""

    lock = threading.Lock()  # events come from any thread

    def tell(event: events.Event) -> None:
        with lock:
            pipe.send(("event", event))

    try:
        return "ended", run(request, tell)
    except Exception as error:
        return "error", error if isinstance(error, KgenError) and _travels(error) else EvaluatorError(_line(error))


def _travels(error: Exception) -> bool:
    try:
        return isinstance(pickle.loads(pickle.dumps(error)), type(error))
    except Exception:
        return False


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
