"""One candidate on its way through the phases: loaded, validated, timed."""

import os
import threading
import time
import uuid
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any, Callable, Iterator, Mapping, Sequence

from kgen.candidate import Candidate
from kgen.errors import DiskError, EvaluatorError
from kgen.evaluator.candidates.build import copy_library, read_extension
from kgen.evaluator.candidates.checks import Operators, Profile
from kgen.evaluator.correctness.validate import (
    OWN_NUMBERS,
    Failure,
    Validation,
    WorkerClient,
    audit,
    check_structure,
    decide,
    explain,
    raise_if_failed,
)
from kgen.evaluator.pool import TimeIsUp
from kgen.evaluator.timing.conditions import Conditions
from kgen.evaluator.timing.measure import Runner
from kgen.protocol import BuildReport, CaseErrors, Depth, Evaluation, Phase, Status, Timing, Weights

if TYPE_CHECKING:
    from pathlib import Path

    from kgen.evaluator.evaluator import Evaluator

_LOG_BYTES = 1 << 20
_CANDIDATE_FILE = "model_new.py"  #: in a worker's scratch folder
_STATE_APART = "state of its own: judged by outputs"  #: label: it lacks what forward writes in no state dict


@dataclass
class Beside:
    """A timing in turns with the baselines for about ``seconds``. ``begins`` is called when it begins. ``baselines``
    has their timings, once it has ended."""

    seconds: float
    begins: Callable[[], object] = lambda: None
    baselines: tuple[Timing, ...] = ()


class Judging:
    """One candidate on its way through the phases, with the process that holds it; ``until`` then, on the monotonic
    clock. With ``beside``, it is timed in turns with the baselines, and not alone."""

    def __init__(
        self,
        evaluator: "Evaluator",
        candidate: Candidate,
        build: BuildReport,
        until: float = inf,
        beside: Beside | None = None,
    ) -> None:
        self._until = until
        self._beside = beside
        self._evaluator = evaluator
        self._checks = evaluator.checks
        self._candidate = candidate
        self._build = build
        self._worker: WorkerClient  # from loading on
        self._weights = Weights.DRAWN  # of its test cases
        self._libraries: dict[str, str] = {}  # the paths of libraries that are built, by what they are made of
        self._errors: list[CaseErrors] = []
        self._labels: list[str] = []
        self._seconds: dict[Phase, float] = {Phase.BUILD: build.seconds} if build.seconds else {}
        self._timing: Timing | None = None
        self._profile = Profile()
        self._log = evaluator.home / "logs" / "candidates" / f"{candidate.id[:16]}-{uuid.uuid4().hex[:8]}.log"
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log.write_text("")

    def run(self, *, timed: bool = True) -> tuple[Evaluation, bool]:
        """All phases, or those before timing, and whether a signal from outside ended them. Raises
        :class:`EvaluatorError` when the evaluator itself fails, and :class:`TimeIsUp` when the limits cut them."""
        evaluator, from_outside, is_cut = self._evaluator, False, False
        slots = evaluator.slots
        slots.acquire()
        try:
            if evaluator.large:
                evaluator.compared.prepared()  # the baselines have freed their memory then
            with ExitStack() as work:  # for both phases: a waiting timing waits for candidates on the way to one
                begins = cache(lambda: work.enter_context(evaluator.lock.working()))
                for load, is_beside in self._loading():
                    if not is_beside:
                        begins()
                    with self._phase(Phase.LOAD):
                        load()
                with self._phase(Phase.VALIDATE):
                    self._validate()
                    if timed and not evaluator.large:  # a large one's memory is free until its turn
                        evaluator.workers.rehearse(self._worker)
            if timed:
                baselines = evaluator.compared.ready(alone=self._beside is None)
                with evaluator.timing() as conditions_now:
                    with self._phase(Phase.PREPARE):
                        runner = self._runner()
                    with self._phase(Phase.TIME):
                        self._time(runner, baselines, conditions_now)
                    if not self._checks.strict:  # the times of its kernels count
                        self._find_profile(runner)
                if self._checks.strict:  # a profiler takes long to start, and others may work meanwhile
                    with evaluator.lock.working():
                        self._find_profile(runner)
            result = self._evaluation(Status.OK, "", None)
        except Failure as failure:
            result = self._evaluation(failure.status, failure.reason, failure.phase)
            from_outside = failure.from_outside
            is_cut = failure.status is Status.TIMEOUT and time.monotonic() >= self._until
        except BaseException:
            self.close()
            slots.release()
            raise
        if self._checks.ahead and not evaluator.large:  # memory of a large problem is free before the next begins
            evaluator.ends.submit(self._end, slots)
        else:
            self._end(slots)
        if is_cut:
            raise TimeIsUp(self._candidate.id)
        self._finish_log(result)
        return result, from_outside

    @contextmanager
    def _phase(self, phase: Phase) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds[phase] = self._seconds.get(phase, 0.0) + time.monotonic() - started

    def _enter(self, phase: Phase, seconds: float) -> None:
        """Begin a phase of the worker. Raises :class:`TimeIsUp` where no time is left for it."""
        left = self._until - time.monotonic()
        if left <= 0.0:
            raise TimeIsUp(self._candidate.id)
        self._worker.enter(phase, min(seconds, left))

    def _evaluation(self, status: Status, reason: str, phase: Phase | None) -> Evaluation:
        timing = self._timing if status in (Status.OK, Status.SUSPICIOUS) else None
        labels = [*self._labels, *self._checks.labels(self._candidate)]
        return Evaluation(
            self._candidate.id,
            status,
            reason,
            self._evaluator.accuracy,
            phase,
            tuple(self._errors),
            self._build,
            timing,
            tuple(dict.fromkeys(labels)),
            tuple(self._seconds.items()),
            str(self._log),
            own_share=self._profile.own_share,
            replaced=self._profile.replaced,
            kernel_ms=tuple(self._profile.kernel_ms.items()),
        )

    def _end(self, slots: threading.BoundedSemaphore) -> None:
        try:
            with nullcontext() if self._is_beside else self._evaluator.lock.working():
                self.close()
        except EvaluatorError:  # the evaluator closes
            self.close()
        finally:
            slots.release()

    def close(self) -> None:
        if hasattr(self, "_worker"):
            self._evaluator.workers.let_go(self._worker)

    @property
    def _is_beside(self) -> bool:
        """Whether processes start and end beside timings. Samples do not show that."""
        return self._checks.beside_timings and self._evaluator.kind.accelerator

    def _loading(self) -> Sequence[tuple[Callable[[], None], bool]]:
        """The steps of loading, with whether each may go on beside a timing."""
        compiles = self._is_beside and self._checks.compiles(self._candidate)
        return (self._start, self._is_beside), (self._execute, compiles), (self._make, False)

    def _start(self) -> None:
        """Start a worker, or take the spare one."""
        evaluator = self._evaluator
        if evaluator.spare is not None:
            self._worker = evaluator.spare.take()
            self._place(self._worker.scratch)
        else:
            self._worker = evaluator.workers.start(self._place, candidate=self._candidate)
        self._worker.child.log.replace(self._log)

    def _execute(self) -> None:
        """Have the worker execute the candidate's file."""
        evaluator, path = self._evaluator, self._worker.scratch / _CANDIDATE_FILE
        limits = evaluator.limits
        self._enter(Phase.LOAD, limits.load_seconds + (0.0 if self._libraries else limits.build_seconds))
        evaluator.workers.load(self._worker, {"path": str(path), "libraries": self._libraries})

    def _make(self) -> None:
        """Have the worker construct ``ModelNew``."""
        reply = self._evaluator.workers.make(self._worker)
        self._checks.settled(self._worker)
        if reply.get("matched") is not True:
            self._weights = Weights.CONSTRUCTED
            self._labels.append("kernelbench protocol")
        elif reply.get("complete") is not True:
            self._weights = Weights.SAVED
            self._labels.append(_STATE_APART)

    def _place(self, scratch: "Path") -> None:
        """Put the candidate's file and its library into ``scratch``. Raises :class:`DiskError`."""
        try:
            (scratch / _CANDIDATE_FILE).write_text(self._candidate.source, encoding="utf-8")
            self._libraries = copy_library(read_extension(self._candidate.source), self._build, scratch)
        except OSError as error:
            raise DiskError(f"{scratch}: a candidate's files cannot be put there: {error}") from error

    def _validate(self) -> None:
        evaluator = self._evaluator
        self._enter(Phase.VALIDATE, evaluator.limits.validate_seconds)
        names = [tuple(pair) for pair in evaluator.opened.cases]
        # On a CPU, the oracle and the worker would compete for the cores.
        room = self._worker.output_bytes // 2 if evaluator.kind.accelerator else 0
        holds_strides = self._checks.holds_strides
        Validation(
            self._worker, evaluator.running(), self._weights, self._errors, self._labels, room, holds_strides
        ).run(names)
        audit(self._worker, self._checks.settled)
        if evaluator.large:
            raise_if_failed(self._worker.ask("rest"), Phase.VALIDATE)

    def runner(self) -> Runner:
        """The candidate, loaded again and ready to be timed, for a session of finals. Raises :class:`Failure`."""
        with self._evaluator.lock.working():  # another evaluator may be timing
            for load, _ in self._loading():
                load()
            return self._runner()

    def _runner(self) -> Runner:
        evaluator = self._evaluator
        self._enter(Phase.TIME, evaluator.limits.time_seconds)
        runner = evaluator.workers.ready(self._candidate.id, self._worker)
        runner.check = self._check_output
        return runner

    def _time(self, runner: Runner, baselines: Sequence[Runner], conditions_now: Callable[[], Conditions]) -> None:
        """Time the candidate, alone or in turns with the baselines, and check its samples."""
        evaluator, depth = self._evaluator, Depth.SCREEN if self._beside is None else Depth.FINAL
        session = uuid.uuid4().hex
        try:
            if self._beside is None:
                runner.screen(evaluator.random)
                self._labels += self._checks.screened(runner, evaluator.compared.runners.get("eager"), evaluator.random)
            else:
                kept = self._interleave(runner, baselines, self._beside)
                runner.check_last(evaluator.random)
                self._beside.baselines = tuple(one.timing(depth, session, conditions_now()) for one in kept)
        finally:
            if runner.blocks:
                self._timing = runner.timing(depth, session, conditions_now())

    def _interleave(self, runner: Runner, baselines: Sequence[Runner], beside: Beside) -> list[Runner]:
        """Time the candidate in turns with the baselines. Returns those that did not fail; raises the candidate's
        :class:`Failure`."""
        evaluator, seconds = self._evaluator, beside.seconds
        failures: list[Failure] = []

        def lost(one: Runner, failure: Failure) -> None:
            if one is runner:
                failures.append(failure)
            else:
                evaluator.compared.lose(one, failure)

        beside.begins()
        for one in (runner, *baselines):
            one.worker.enter(Phase.TIME, evaluator.limits.time_seconds + 4 * seconds)
        kept = self._checks.finals([runner], baselines, seconds, evaluator.random, lost, evaluator.notice)
        if failures:
            raise failures[0]
        return [one for one in kept if one is not runner]

    def _find_profile(self, runner: Runner) -> None:
        evaluator = self._evaluator
        operators = Operators(evaluator.opened.operators, evaluator.opened.elementwise)
        self._profile = self._checks.profiled(runner, self._candidate, operators)
        self._labels += self._profile.labels

    def _check_output(self, reply: Mapping[str, Any], mode: str, key: int) -> None:
        """Judge the output of a timed call. Raises :class:`Failure`."""
        evaluator = self._evaluator
        oracle = evaluator.running()
        case = oracle.case(evaluator.opened.cases[0][0], mode, self._weights)
        check_structure(case.outputs, reply.get("output"), "in a timed call", Phase.TIME)
        # Finals do not know how the candidate was validated.
        own_numbers = not self._errors or any(label.startswith(OWN_NUMBERS) for label in self._labels)
        rows = oracle.judge(self._worker, case, "timed call", key=key, own_numbers=own_numbers).rows
        decide(rows, "in a timed call", Phase.TIME, self._checks.wrong_when_timed)

    def _finish_log(self, result: Evaluation) -> None:
        """Cut the candidate's output to size, and append its error figures and its status."""
        with open(self._log, "r+b") as log:
            size = log.seek(0, os.SEEK_END)
            if size > _LOG_BYTES:
                log.truncate(_LOG_BYTES)
                log.seek(0, os.SEEK_END)
                log.write(f"\n[cut off: the output had {size} bytes]\n".encode())
            lines = [f"[{e.case}] {e.output}: {'ok' if e.ok else 'WRONG'} {explain(e)}" for e in result.errors]
            lines.append(f"[{result.status}] {result.reason}")
            log.write(("\n" + "\n".join(lines) + "\n").encode())
