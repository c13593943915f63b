"""Evaluates adversarial cases, and looks for traces that a candidate left outside its own folder."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

from cases import HERE, AdversarialCase, EvaluatorSetting
from lending import Lender

import kgen
from kgen.candidate import Candidate, Trust
from kgen.devices.kinds import HOST
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.runtime.sandbox import descendants
from kgen.evaluator.strict import processes, timing_anomalies
from kgen.problems.problem import read_problem
from kgen.protocol import Accuracy, Evaluation, Limits

#: In the name of everything that a case writes outside its folder, and of every process that it leaves behind.
MARK = "kgen-adversary"
LIMITS = Limits(load_seconds=30, validate_seconds=60, time_seconds=60, host_bytes=2 << 30)
#: Seconds of all float64 runs where time decides, and not values: test cases have fewer rows.
BRIEFLY = 4.0
SETTLE_SECONDS = 0.25  #: those of a machine that others keep busy take less than 0.1
_CANARY = "nobody writes here"
_SETTLE_SECONDS = 20.0  # on a machine that others keep busy


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case: its evaluation, the traces that it left, and the evaluation of an honest file after it."""

    evaluation: Evaluation | None
    raised: str  # a traceback: the evaluator itself must not raise
    traces: tuple[str, ...]
    after: Evaluation | None

    def faults(self, case: AdversarialCase) -> list[str]:
        """Every way in which the result is not what the case's header says."""
        if self.evaluation is None:
            return [f"the evaluator raised: {self.raised}"]
        status, reason, labels = self.evaluation.status, self.evaluation.reason, self.evaluation.labels
        faults = list(self.traces)
        if status not in case.statuses:
            faults.append(f"it is {status} ({reason}), not {' or '.join(case.statuses)}")
        if not reason.isprintable() or bool(reason) != (status != "ok"):
            faults.append(f"the reason for {status} is no printable line: {reason!r}")
        if case.label is not None and not any(case.label in label for label in labels):
            faults.append(f"no label has {case.label!r} in it: {labels}")
        if self.after is not None and self.after.status != "ok":
            faults.append(f"an honest file after it is {self.after.status} ({self.after.reason})")
        return faults


class Listener:
    """Sockets outside the sandbox, by name in ``listener.json``; no candidate may reach them."""

    def __init__(self, folder: Path) -> None:
        self._sockets: dict[str, socket.socket] = {}
        where: dict[str, Any] = {}
        for name, kind in (("tcp", socket.SOCK_STREAM), ("udp", socket.SOCK_DGRAM)):
            sock = socket.socket(socket.AF_INET, kind)
            sock.bind(("127.0.0.1", 0))
            self._sockets[name], where[name] = sock, sock.getsockname()[1]
        for name, address in (("unix", str(folder / "listener.sock")), ("abstract", f"\0{MARK}-{folder.name}")):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.bind(address)
            self._sockets[name], where[name] = sock, address
        for name, sock in self._sockets.items():
            sock.setblocking(False)
            if name != "udp":
                sock.listen()
        (folder / "listener.json").write_text(json.dumps(where))

    def reached(self) -> list[str]:
        """The sockets that were reached since the last call."""
        return [f"it reached a {name} socket" for name, sock in self._sockets.items() if _drained(name, sock)]

    def close(self) -> None:
        for sock in self._sockets.values():
            sock.close()


def _drained(name: str, sock: socket.socket) -> int:
    """How many packets or connections waited."""
    for count in range(1 << 16):
        try:
            if name == "udp":
                sock.recv(1)
            else:
                sock.accept()[0].close()
        except BlockingIOError:
            return count
    return count


class CaseRunner:
    """Evaluates cases. One evaluator is open at a time, so cases that share a setting should come one after the other.
    Each evaluator has a folder of its own below ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lender = Lender()
        self._setting: EvaluatorSetting | None = None
        self._evaluator: Evaluator | None = None
        self._listener: Listener | None = None
        self.notices: list[str] = []

    def run(self, case: AdversarialCase, alone: Callable[[], AbstractContextManager[None]]) -> CaseResult:
        """The result of a case. One with the wrong status is evaluated once more by a new evaluator, ``alone`` on the machine.

        Beside other tests, a thread may get no processor, and noise may hide its work. An evaluator times PyTorch once: noise
        then hides the work of each later case.
        """
        self._open(case.setting)
        result = self._run(case)
        evaluation = result.evaluation
        if evaluation is not None and evaluation.status not in case.statuses and not result.traces:
            with alone():
                self._close_evaluator()
                self._open(case.setting)
                result = self._run(case)
        return result

    def missing_sandbox(self, case: AdversarialCase) -> list[str]:
        """The parts of the sandbox that the system does not allow, as the evaluator says."""
        self._open(case.setting)
        self._evaluate("x = 1")
        return [text for text in self.notices if "not allow" in text or "without" in text]

    def close(self) -> None:
        self._close_evaluator()
        self._lender.close()

    def _close_evaluator(self) -> None:
        if self._evaluator is not None:
            self._evaluator.close()
        if self._listener is not None:
            self._listener.close()
        self._evaluator = self._listener = self._setting = None

    def _open(self, setting: EvaluatorSetting) -> None:
        if setting == self._setting:
            return
        self._close_evaluator()
        home = Path(tempfile.mkdtemp(dir=self._folder))
        self._listener = Listener(home)
        problem = read_problem(str(setting.path), dict(setting.sizes), setting.mode)
        # Where sizes are given, time decides; otherwise flushing the cache would take most of it.
        limits, cache = (replace(LIMITS, reference_seconds=BRIEFLY), "cold") if setting.sizes else (LIMITS, "warm")
        evaluator = Evaluator(problem, device=setting.device, accuracy=Accuracy(setting.accuracy), home=home, limits=limits,
                              baselines=("eager",), notice=self.notices.append, cache=cache)
        if setting.sizes and setting.device == HOST.name:
            evaluator.kind = HOST  # with all calls of a screening
        self._evaluator = self._lender.lend(evaluator)
        with contextlib.chdir(self._folder):  # as a user runs kgen: the scratch folders lie below the current one
            self._evaluator.__enter__()
        self._evaluator.baselines()
        self._setting = setting

    def _run(self, case: AdversarialCase) -> CaseResult:
        assert self._evaluator is not None and self._listener is not None
        canary = self._evaluator.home / "canary"
        canary.write_text(_CANARY)
        canary.chmod(0o600)
        written, before = canary.stat(), set(descendants(os.getpid()))
        evaluation, raised, after = None, "", None
        try:
            with _suspected(timing_anomalies.REMEASUREMENTS if case.honest else 1), _settled_for(SETTLE_SECONDS):
                evaluation = self._evaluate(case.source, case.seconds)
        except Exception:
            raised = traceback.format_exc()
        finally:
            self._evaluator.limits = LIMITS
        traces = [*_changes(canary, written), *_files(self._evaluator.home), *_processes(before),
                  *self._listener.reached()]
        if case.followed:
            after = self._evaluate(case.setting.file("ModelNew"))
        if raised or traces or (after is not None and after.status != "ok"):
            self.close()  # the next case begins with fresh processes
        return CaseResult(evaluation, raised, tuple(traces), after)

    def _evaluate(self, source: str, seconds: float | None = None) -> Evaluation:
        """Build and evaluate ``source``; ``seconds`` limits each phase but the build."""
        assert self._evaluator is not None and self._setting is not None
        candidate = Candidate(source, "adversarial", {}, self._setting.device, origin=Trust.FOREIGN)
        build = self._evaluator.builder().build(source)
        if seconds is not None:
            self._evaluator.limits = replace(LIMITS, load_seconds=seconds, build_seconds=0.0, validate_seconds=seconds,
                                             time_seconds=seconds)
        return self._evaluator.evaluate(candidate, build)


@contextlib.contextmanager
def _suspected(times: int) -> Iterator[None]:
    """A suspected file is measured again so often, at most. Of a cheat, the first time shows what the others show."""
    with mock.patch.object(timing_anomalies, "REMEASUREMENTS", times):
        yield


@contextlib.contextmanager
def _settled_for(seconds: float) -> Iterator[None]:
    """Threads are waited for so long, at most: those of a cheat work for all of that, some of them on every core."""
    with mock.patch.object(processes, "_SETTLE_SECONDS", seconds):
        yield


def _changes(canary: Path, before: os.stat_result) -> list[str]:
    now = canary.stat()
    fields = ("st_mode", "st_uid", "st_nlink", "st_mtime_ns", "st_size")
    changed = [name for name in fields if getattr(now, name) != getattr(before, name)]
    changed += ["its text"] if canary.read_text() != _CANARY else []
    return [f"it changed {what} of a file that is not its own" for what in changed]


def _files(home: Path) -> list[str]:
    """The traces outside the scratch folder, and those that are left in it; removes them."""
    folders = (home, home / "scratch", home / "logs", home / "builds", Path.cwd(), Path.home(), HERE,
               HERE / "problems", Path(kgen.__file__).parent, Path(tempfile.gettempdir()), Path("/dev/shm"))
    found = [path for folder in folders if folder.is_dir() for path in folder.glob(f"*{MARK}*")]
    found += [path for path in (home / "scratch").iterdir() if path.name != "baselines"]
    for path in found:
        subprocess.run(["rm", "-rf", path], check=True)  # shutil.rmtree recurses
    return [f"it left {path}" for path in found]


def _processes(before: set[int]) -> list[str]:
    deadline = time.monotonic() + _SETTLE_SECONDS
    while (left := set(descendants(os.getpid())) - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    return [f"process {pid} is left" for pid in left]
