"""Problems of a suite beside each other: each has a process of the driver, and devices of its own.

    suite -> submit(request) -> [process: sweep] -> events, result
                                     |-> its devices of the cluster

The processes run on the driver's machine and write to its store. They capture and render, which takes seconds of a core
for each problem.
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
from typing import Any

from kgen import events
from kgen.cluster.connection import connect
from kgen.cluster.devices import open_devices
from kgen.cluster.fleet import Fleet, Node
from kgen.errors import EvaluatorError, KgenError
from kgen.evaluator.runtime.sandbox import die_with_parent
from kgen.tuning import sweep
from kgen.tuning.sweep import SweepRequest

_END_SECONDS = 10.0  # of a process that was asked to end


@dataclass(frozen=True)
class Place:
    """The devices of one process: their cluster, the kind of its fleet, and their number."""

    address: str
    with_code: bool
    device: str | None
    nodes: tuple[Node, ...]
    devices: int


@dataclass(eq=False)
class _Conductor:
    """A process that runs one sweep at a time."""

    process: BaseProcess
    pipe: Connection


class SideBySide:
    """Runs sweeps of a suite of ``problems`` in processes; see :class:`kgen.tuning.suite.Sweeps`.

    Each problem has one device, or more where there are fewer problems than devices. A context manager: leaving ends
    the processes.
    """

    def __init__(self, address: str, fleet: Fleet, device: str | None, problems: int, on_event: events.Listener) -> None:
        every = fleet.kind.devices
        each = max(1, every // problems)
        self.at_once = min(every // each, problems)
        self._place = Place(address, fleet.with_code, device, tuple(fleet.nodes), each)
        self._fleet = fleet
        self._on_event = on_event
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
        self._tell()
        try:
            return self._ended(conductor, request, on_event)
        finally:
            self._busy.discard(conductor)
            self._free.put(conductor if conductor.process.is_alive() else self._conductor())
            self._tell()

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
        process = multiprocessing.get_context("spawn").Process(target=_conduct, args=(theirs, self._place), daemon=True)
        process.start()
        theirs.close()
        self._all.add(conductor := _Conductor(process, mine))
        return conductor

    def _tell(self) -> None:
        nodes = len(self._fleet.kind.nodes)
        self._on_event(events.Cluster(nodes, self._fleet.kind.devices, len(self._busy) * self._place.devices))


def _conduct(pipe: Connection, place: Place) -> None:
    """The process: sweep after sweep until the pipe is closed."""
    die_with_parent()
    os.setsid()  # Ctrl-C reaches the driver alone, which tells its processes
    try:
        connect(place.address, with_code=place.with_code)
        fleet = Fleet(place.device, known=place.nodes)
        while True:
            pipe.send(_swept(pipe.recv(), pipe, fleet, place.devices))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _swept(request: SweepRequest, pipe: Connection, fleet: Fleet, devices: int) -> tuple[str, Any]:
    """Run one sweep. Returns its result, or the error that it raised in a form that goes through a pipe."""

    lock = threading.Lock()  # events come from any thread

    def tell(event: events.Event) -> None:
        with lock:
            pipe.send(("event", event))

    try:
        return "ended", sweep.run(request, tell, open_devices(fleet, devices))
    except Exception as error:
        return "error", error if isinstance(error, KgenError) and _travels(error) else EvaluatorError(_line(error))


def _travels(error: Exception) -> bool:
    try:
        return isinstance(pickle.loads(pickle.dumps(error)), type(error))
    except Exception:
        return False


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
