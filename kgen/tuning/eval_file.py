"""The evaluation of one file that anybody may have written, on the path of a sweep's candidates.

    file -> candidate -> build -> evaluator, which times it in turns with the baselines -> database

The evaluation is stored as a sweep of one candidate, of kind ``eval``. Each call evaluates the file again.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Mapping

from kgen import paths
from kgen.candidate import Candidate, Trust
from kgen.devices.kinds import KINDS
from kgen.devices.machine import find_own_tools, keep_bytecode, resolve_device
from kgen.errors import InputError
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.judging import Beside
from kgen.problems import syntax
from kgen.problems.problem import Problem
from kgen.protocol import BASELINES, Accuracy, Evaluation, Phase, Status, Timing
from kgen.protocol.statistics import fastest, median_ms, standing
from kgen.store import Database
from kgen.tuning import events

#: The plan's name of a file that kgen did not render; stored in the database.
OUTSIDE = "outside"


@dataclass(frozen=True)
class EvalRequest:
    """One file to evaluate. ``source`` is the text of ``file``.

    ``seconds`` is the duration of the timing with the baselines. ``cache`` is the state of the device's cache before
    each timed call: ``cold`` (flushed) or ``warm``.
    """

    problem: Problem
    file: str
    source: str
    device: str | None = None
    accuracy: Accuracy = Accuracy.PYTORCH
    baselines: tuple[str, ...] = BASELINES
    seconds: float | None = None
    cache: str = "cold"
    profile: bool = False  #: label the share of time in own kernels
    db: str | None = None


def read_source(file: Path) -> str:
    """The text of a candidate's file, byte for byte. Raises :class:`InputError` where there is no readable text."""
    if file.is_dir():
        raise InputError(f"{file} is a folder: name a Python file with a class ModelNew")
    try:
        source = file.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: is not UTF-8 text (byte {error.start}): name a Python file") from error
    if not source.strip():
        raise InputError(f"{file}: is empty: it needs a class ModelNew")
    return source


def syntax_error(file: str, source: str) -> str | None:
    """The syntax error of a file in one line, with the file's own name; ``None`` where Python can parse it."""
    try:
        with warnings.catch_warnings(action="ignore"):  # a strange escape is a warning, and no error
            syntax.parse(source, file)
    except SyntaxError as error:
        return f"{file}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    except (ValueError, RecursionError, MemoryError):
        return None  # the evaluator judges what this parser cannot read
    return None


def run(request: EvalRequest, on_event: events.Listener) -> events.Judged:
    """Evaluate the file, time it with the baselines if it is right, and store the result.

    Raises :class:`kgen.errors.KgenError` for a fault of the problem, the device, a compiler or the database. A fault of
    the file is its status. ``KeyboardInterrupt`` passes through, and all results so far are stored.
    """

    def notice(text: str) -> None:
        on_event(events.Notice(text))

    started = time.monotonic()
    find_own_tools()
    keep_bytecode(paths.bytecode())
    device = resolve_device(request.device)
    on_event(events.Step("starting the evaluator"))
    with (
        Database.open(request.db, notice=notice) as database,
        Evaluator(
            request.problem,
            device=device,
            accuracy=request.accuracy,
            home=paths.home(),
            baselines=request.baselines,
            notice=notice,
            cache=request.cache,
            step=lambda text: on_event(events.Step(text)),
            profile=request.profile,
        ) as evaluator,
    ):
        return judge(request, database, evaluator, device, on_event, started)


def judge(
    request: EvalRequest,
    database: Database,
    evaluator: Evaluator,
    device: str,
    on_event: events.Listener,
    started: float,
) -> events.Judged:
    """The same, with an evaluator of the request's problem, class and baselines that has started; ``started`` is on the
    monotonic clock. The evaluator may judge other files at once: their last timings take turns."""
    return _Eval(request, database, evaluator, device, on_event, started).run()


@dataclass
class _Eval:
    request: EvalRequest
    database: Database
    evaluator: Evaluator
    device: str
    on_event: events.Listener
    started: float  # by the monotonic clock
    sweep: str = ""
    candidate: Candidate = field(init=False)

    def __post_init__(self) -> None:
        device_type = self.evaluator.hardware.device_type
        self.candidate = Candidate(self.request.source, OUTSIDE, {}, device_type, origin=Trust.FOREIGN)

    def run(self) -> events.Judged:
        opened = self._open()
        state, best = "failed", None
        try:
            judged = self._judge(opened)
            state, best = "finished", self.candidate.id if judged.ok else None
        except KeyboardInterrupt:
            state = "interrupted"
            raise
        finally:
            self.database.finish_sweep(self.sweep, state, time.monotonic() - self.started, best)
        self.on_event(judged)
        return judged

    def _open(self) -> events.Opened:
        """Start the sweep in the store, and report it."""
        problem, environment = self.evaluator.problem, self.evaluator.environment
        health = self.evaluator.health()
        paths.write_candidate(self.candidate.id, self.candidate.source)
        self.database.add_problem(problem, health)
        self.database.add_environment(environment)
        self.sweep = self.database.start_sweep(
            problem=problem,
            environment=environment,
            accuracy=self.evaluator.accuracy,
            device=self.device,
            arguments={
                "file": self.request.file,
                "device": self.device,
                "baselines": self.request.baselines,
                "seconds": self.request.seconds,
                "cache": self.request.cache,
            },
            combinations=1,
            budget=1,
            kind="eval",
            products=self.evaluator.products,
        )
        opened = events.Opened(
            sweep=self.sweep,
            file=self.request.file,
            candidate=self.candidate.id,
            problem=problem,
            device=self.device,
            environment=environment,
            accuracy=self.evaluator.accuracy,
            health=health,
            db=self.database.name,
        )
        self.on_event(opened)
        return opened

    def _judge(self, opened: events.Opened) -> events.Judged:
        """Build, validate and screen the file; if it is right, time it with the baselines."""
        if reason := syntax_error(self.request.file, self.request.source):
            evaluation = Evaluation(self.candidate.id, Status.LOAD_ERROR, reason, self.evaluator.accuracy, Phase.LOAD)
            return events.Judged(opened, self._keep(evaluation), evaluation)
        self._step("building")
        build = self.evaluator.builder().build(self.candidate.source)
        self._step("loading, validating, preparing the baselines")
        seconds = self.request.seconds or KINDS[self.evaluator.hardware.device_type].timing_seconds
        names = ", ".join(self.request.baselines)
        beside = Beside(seconds, lambda: self._step(f"timing beside {names}"))
        evaluation = self.evaluator.evaluate(self.candidate, build, beside=beside)
        evaluation_id = self._keep(evaluation)
        if evaluation.status is not Status.OK or evaluation.timing is None:
            return events.Judged(opened, evaluation_id, evaluation)
        self.database.add_timings(self.sweep, self.evaluator.environment.id, self.evaluator.accuracy, beside.baselines)
        own = evaluation.timing
        return self._timed(
            events.Judged(opened, evaluation_id, evaluation, own, median_ms(own)),
            {timing.subject: timing for timing in beside.baselines},
        )

    def _keep(self, evaluation: Evaluation) -> str:
        """Store the evaluation; returns its id."""
        timed = evaluation.timing if evaluation.status is Status.OK else None
        return self.database.add_evaluation(
            self.sweep,
            self.candidate,
            evaluation,
            environment_id=self.evaluator.environment.id,
            median_ms=median_ms(timed) if timed else None,
        )

    def _timed(self, judged: events.Judged, baselines: Mapping[str, Timing]) -> events.Judged:
        """``judged`` with its speedup over the fastest baseline, which is stored too."""
        assert judged.timing
        if not baselines:
            return judged
        reference = fastest(list(baselines.values()))
        own = standing(reference, judged.timing)
        beside = {name: standing(reference, timing).ms for name, timing in baselines.items()}
        self.database.set_result(
            self.sweep,
            self.candidate.id,
            median_ms=own.ms,
            speedup=own.speedup.mid,
            speedup_low=own.speedup.low,
            speedup_high=own.speedup.high,
            baselines=beside,
            baseline=reference.subject,
            error_ratio=judged.evaluation.error_ratio,
            tie=False,
        )
        figures = {"median_ms": own.ms, "speedup": own.speedup}
        return replace(judged, baselines=tuple(beside.items()), baseline=reference.subject, **figures)

    def _step(self, text: str) -> None:
        self.on_event(events.Step(text))
