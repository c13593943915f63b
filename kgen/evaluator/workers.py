"""The workers of an evaluator: how they start, what they are given, and how they end."""

import os
import threading
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

from kgen.candidate import Candidate
from kgen.errors import EvaluatorError
from kgen.evaluator.correctness.validate import Failure, WorkerClient, raise_if_failed
from kgen.evaluator.strict.timing_anomalies import least_ms
from kgen.evaluator.timing.measure import Runner, sleep_ns
from kgen.protocol import Status

if TYPE_CHECKING:
    from kgen.evaluator.evaluator import Evaluator

AT_ONCE = 6  #: candidates that a GPU judges at once; timings take turns, everything else goes on side by side
LARGE_BYTES = 1 << 30  #: of inputs and outputs; above it, memory is freed between calls
#: Device memory that a candidate may have: times PyTorch's own peak, and bytes more for workspaces.
_TIMES_PEAK, _SPARE_BYTES = 2, 2 << 30
#: Workers that start or end at once on all GPUs. The driver does both under one lock of the machine, 5 to 10 a second.
_STARTS = threading.BoundedSemaphore(AT_ONCE)
#: Variables that say where torch and its compilers write: below a worker's scratch folder.
FOLDERS = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH", "TMPDIR", "HOME")


class Workers:
    """Starts workers for an evaluator, of candidates and of baselines, and has them load modules and get ready for
    timing."""

    def __init__(self, evaluator: "Evaluator") -> None:
        self._evaluator = evaluator
        self._level = 0  # the index of how workers are confined, in the checks' levels
        self._confined = False  # whether a worker has started so
        self._missing: set[str] = set()  # the parts of the sandbox that people know to be missing

    def candidate_bytes(self) -> int:
        """Bytes of device memory that a candidate may have, by PyTorch's allocator. They are a multiple of the peak of
        PyTorch's own forward, and the harness's tensors in the same process."""
        opened = self._evaluator.opened
        harness = 2 * opened.load["state_bytes"] + 2 * opened.bytes + opened.output_bytes + opened.flush_bytes
        return _TIMES_PEAK * opened.peak_bytes + harness + _SPARE_BYTES

    def fit(self) -> int:
        """How many candidates are judged side by side. All fit into their share of the device's memory. If each
        candidate needs as much memory as PyTorch, the candidates beside the first share the spare bytes."""
        evaluator = self._evaluator
        if evaluator.large:
            return 1
        fitting = evaluator.limits.device_share * evaluator.hardware.global_bytes / self.candidate_bytes()
        return max(1, min(AT_ONCE, int(fitting), int(1 + _SPARE_BYTES / (evaluator.opened.peak_bytes + 1))))

    def problem_fields(self) -> dict[str, Any]:
        """The problem for other processes. Overrides are in its source."""
        evaluator = self._evaluator
        return asdict(
            replace(evaluator.problem, overrides=(), asked_mode=evaluator.problem.asked_mode or evaluator.problem.mode)
        )

    def confinement(self, *writable: Path) -> dict[str, Any]:
        """Options of processes that run the problem's code: none, unless that is foreign."""
        evaluator = self._evaluator
        if not evaluator.foreign_problem:
            return {}
        folders = [str(folder) for folder in writable]
        return {
            "sandboxed": True,
            "own_user": True,
            "writable": folders,
            "scratch_bytes": evaluator.limits.scratch_bytes,
            "processes": evaluator.limits.processes + 4 * evaluator.threads,
            "hidden": evaluator.hidden,
            "shown": folders,
        }

    def options(self, *, worker: bool) -> dict[str, Any]:
        """Options of all processes. A ``worker``, of a candidate or a baseline, sees its device as the first."""
        evaluator = self._evaluator
        return {
            "device": evaluator.kind.first if worker and evaluator.seen_alone else evaluator.device,
            "accuracy": str(evaluator.accuracy),
            "threads": evaluator.threads,
            "shared": evaluator.shared,
            "strict": evaluator.checks.strict,
            "subject": evaluator.checks.subject,
            "flags": evaluator.opened.flags,
        }

    def start(
        self,
        place: Callable[[Path], None] = lambda scratch: None,
        subject: str = "",
        candidate: Candidate | None = None,
    ) -> WorkerClient:
        """Start a worker; ``place`` puts the candidate's files into its scratch folder if the ``candidate`` is known
        already. ``subject`` names another class than the class of candidates. Where none starts in the sandbox (a GPU's
        driver may refuse), workers run with less of it, and one notice says so."""
        evaluator = self._evaluator
        name = uuid.uuid4().hex
        scratch = evaluator.home / "scratch" / name
        scratch.mkdir(parents=True)
        place(scratch)
        log = evaluator.home / "logs" / "candidates" / f"worker-{name}.log"
        limits, levels = evaluator.limits, evaluator.checks.levels
        processes = limits.processes + 4 * evaluator.threads
        share = (
            min(1.0, self.candidate_bytes() / evaluator.hardware.global_bytes) if evaluator.kind.accelerator else 1.0
        )
        options = (
            self.options(worker=True)
            | evaluator.checks.options(scratch)
            | {
                "scratch": str(scratch),
                "host_bytes": limits.host_bytes,
                "scratch_bytes": limits.scratch_bytes,
                "device_share": share,
                "processes": processes,
                "hidden": evaluator.hidden,
                "shown": [str(scratch)],
            }
        )
        options |= {"subject": subject} if subject else {}
        variables = (
            dict.fromkeys(FOLDERS, str(scratch))
            | {
                "TORCH_EXTENSIONS_DIR": str(scratch / "extensions"),
                "USER": "kgen",  # a worker's user may have no name
            }
            | dict(evaluator.checks.variables(candidate))
            | evaluator.seen_alone
        )
        while True:
            level = levels[self._level]
            with _STARTS:
                child = evaluator.server.spawn("candidate", options | dict(level.options), log, variables)
                worker = WorkerClient(child, scratch)
                try:
                    missing = [part for part in worker.ready() if part not in self._missing]
                except EvaluatorError as error:
                    child.kill()
                    if self._confined or self._level + 1 == len(levels):
                        raise
                    self._level += 1
                    evaluator.notice(f"no process starts {level.missing} here, so candidates run without: {error}")
                    continue
            for part in missing:
                evaluator.notice(f"this system does not allow {part}: candidates run without")
            self._missing.update(missing)
            self._confined = True
            child.limit(limits.host_bytes, processes)
            return worker

    def load(self, worker: WorkerClient, what: dict[str, Any]) -> None:
        """Have a worker execute the file of its module: a candidate's, or the problem's. Raises :class:`Failure`."""
        evaluator = self._evaluator
        oracle = evaluator.running()
        judged = (
            "problem" not in what or evaluator.checks.strict
        )  # a baseline's calls cost as much as a candidate's there
        output = evaluator.opened.output_bytes if judged else 0
        size = output if output > LARGE_BYTES else 2 * output  # the second run takes the place of the first, or its own
        memory, fds = oracle.ask("output", subject=worker.subject, bytes=size)
        worker.output_bytes = memory["bytes"]
        try:
            reply = worker.ask(
                "load",
                [*evaluator.fds[:2], *fds],
                **evaluator.opened.load,
                output_bytes=memory["bytes"],
                modes=evaluator.problem.modes,
                dtype=evaluator.problem.dtype,
                flush_bytes=evaluator.opened.flush_bytes if evaluator.cold else 0,
                **what,
            )
        finally:
            for fd in fds:
                os.close(fd)
        if reply.get("unshared") is True and evaluator.shared:
            evaluator.shared = False
            evaluator.notice(
                "this system does not share device memory between processes: tensors go through host memory"
            )
            raise EvaluatorError(str(reply["error"]))
        raise_if_failed(reply, worker.phase)

    def make(self, worker: WorkerClient, baseline: str = "eager") -> dict[str, Any]:
        """Have a worker construct its module, which it has loaded; returns which weights the module took. Raises
        :class:`Failure`."""
        evaluator = self._evaluator
        named = {name: evaluator.opened.load[name] for name in ("ties", "unsaved")}
        reply = worker.ask("make", construction=evaluator.construction, baseline=baseline, **named)
        raise_if_failed(reply, worker.phase)
        return reply

    def rehearse(self, worker: WorkerClient) -> None:
        """Give a worker the inputs of timed calls, before the worker holds the device alone. Raises
        :class:`Failure`."""
        evaluator = self._evaluator
        reply = worker.ask("rehearse", evaluator.fds[2:], **evaluator.opened.prepare, frees=evaluator.large)
        raise_if_failed(reply, worker.phase)
        worker.rehearsed = True

    def compile(self, worker: WorkerClient, baseline: str) -> None:
        """Have a rehearsed worker compile what its first call would. Raises :class:`Failure`."""
        reply = worker.ask("compile", baseline=baseline)
        raise_if_failed(reply, worker.phase)

    def ready(self, name: str, worker: WorkerClient) -> Runner:
        """Prepare a worker for timing. Raises :class:`Failure`."""
        evaluator = self._evaluator
        if not worker.rehearsed:
            self.rehearse(worker)
        reply = worker.ask("prepare")
        raise_if_failed(reply, worker.phase)
        try:
            first, steady, launch, allocated = (
                int(reply[name]) for name in ("first_ns", "steady_ns", "launch_ns", "call_bytes")
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Failure(Status.SUSPICIOUS, "what it answers makes no sense", worker.phase) from error
        runner = evaluator.checks.make_runner(
            name,
            worker,
            evaluator.kind,
            evaluator.problem.modes,
            max(0, first - steady) / 1e6,
            steady / 1e6,
            sleep_ns=sleep_ns(launch) if evaluator.kind.accelerator else 0,
            cold=evaluator.cold,
            frees=evaluator.large,
            floor_ms=least_ms(evaluator.opened.bytes, evaluator.opened.copy_rate, evaluator.hardware.device_type),
            launch_ms=launch / 1e6 if evaluator.kind.accelerator else 0.0,
            call_mb=allocated / 1e6,
        )
        runner.rest()
        return runner

    def let_go(self, worker: WorkerClient) -> None:
        """End a worker, and free the oracle's memory for it."""
        evaluator = self._evaluator
        with _STARTS:
            worker.close()
        if evaluator.oracle is not None:
            try:
                evaluator.oracle.ask("forget", subject=worker.subject)
            except EvaluatorError as error:
                evaluator.notice(f"the oracle failed: {error}")
