"""The parent's side of the worker for kernel tasks: one process that checks and times variants of many tasks.

A variant that ends the process, or takes too long, costs itself. Another process goes on with the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ContextManager, Protocol

from kgen.compiler.capture.plain import to_json
from kgen.devices.hardware import Hardware
from kgen.devices.kinds import KINDS
from kgen.evaluator.candidates.build import read_extension
from kgen.evaluator.correctness.validate import Failure, WorkerClient, raise_if_failed
from kgen.protocol import Accuracy, BuildReport, Environment, Phase, Status
from kgen.store.kernel_task import Measured, Variant
from kgen.tuning.tasks.unit import Unit

SUBJECT = "kgen.tuning.tasks.subject:TaskSubject"
_OPEN_SECONDS = 60.0  #: for a file, its operands and its float64 reference
_CALL_SECONDS = 20.0  #: for a variant's check, and for its times
_REFERENCE_PART = 0.2  #: of a GPU's memory, for evaluating a task
_REFERENCE_BYTES = 2 << 30  #: of memory on a CPU, for the same


class Place(Protocol):
    """The device on which tasks are measured; see :class:`kgen.evaluator.evaluator.Evaluator`."""

    device: str
    accuracy: Accuracy
    environment: Environment
    hardware: Hardware
    flush_bytes: int

    def bench(self, subject: str) -> WorkerClient: ...
    def alone(self) -> ContextManager[None]: ...


class Bench:
    """Measures variants on one device. A context manager: leaving ends the process. One thread may use it."""

    def __init__(self, place: Place, folder: Path) -> None:
        self._place, self._folder = place, folder
        self._worker: WorkerClient | None = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def measure(self, unit: Unit, build: BuildReport) -> Iterator[Measured]:
        """The results of a file's variants, one by one as they are there. A variant whose process others end has none.

        Raises :class:`kgen.errors.EvaluatorError` where no process starts.
        """
        if not build.ok:
            status = Status.BUILD_TIMEOUT if build.timed_out else Status.BUILD_ERROR
            for variant, text in zip(unit.variants, unit.texts):
                yield Measured(variant, text, status, build.reason)
            return
        opened = False
        for variant, method, text in zip(unit.variants, unit.methods, unit.texts):
            try:
                if not opened or self._worker is None:
                    self._open(unit, build)
                    opened = True
                yield self._measured(variant, method, text, unit.library)
            except Failure as failure:
                self._end()
                opened = False
                if not failure.from_outside:
                    yield Measured(variant, text, failure.status, failure.reason)

    def _open(self, unit: Unit, build: BuildReport) -> None:
        """Have the process load a file. Raises :class:`Failure`."""
        if self._worker is None:
            self._worker = self._place.bench(SUBJECT)
        task, kernel = unit.task, unit.task.kernel
        path = self._folder / f"task-{unit.candidate.id[:16]}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(unit.candidate.source, encoding="utf-8")
        accelerator = KINDS[task.hardware.device_type].accelerator
        self._ask(
            "open",
            _OPEN_SECONDS,
            task=task.id,
            path=str(path),
            graph=to_json(task.graph),
            nodes=list(kernel.nodes) if kernel else [],
            overwrites=kernel and kernel.overwrites or "",
            library=unit.library,
            libraries=_libraries(unit, build),
            flush_bytes=self._place.flush_bytes,
            most_bytes=int(_REFERENCE_PART * task.hardware.global_bytes) if accelerator else _REFERENCE_BYTES,
        )

    def _measured(self, variant: Variant, method: str, text: str, library: str) -> Measured:
        """Check a variant and time it. Raises :class:`Failure`."""
        found = self._ask("check", _CALL_SECONDS, method=method, library=library)
        error, allowed = found["rms"], found["allowed"]
        if not found["ok"]:
            reason = f"its error is {'not finite' if error is None else f'{error:.3g}'}, and {allowed:.3g} is allowed"
            return Measured(variant, text, Status.WRONG_VALUES, reason, error=error, allowed=allowed)
        with self._place.alone():
            times = self._ask("measure", _CALL_SECONDS, method=method)
        cold, warm = (min(times[name]) / 1e6 for name in ("cold", "warm"))  # other processes only add to a time
        return Measured(variant, text, Status.OK, "", cold, warm, error, allowed)

    def _ask(self, do: str, seconds: float, **request: Any) -> dict[str, Any]:
        assert self._worker is not None
        self._worker.enter(Phase.VALIDATE, seconds)
        reply = self._worker.ask(do, **request)
        raise_if_failed(reply, Phase.VALIDATE)
        return reply

    def _end(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None


def _libraries(unit: Unit, build: BuildReport) -> dict[str, str]:
    """The paths of the file's built libraries, by what they are made of."""
    extension = read_extension(unit.candidate.source)
    if extension is None or build.binary is None:
        return {}
    return {extension.content: str(Path(build.directory, extension.name, f"{extension.name}.so"))}
