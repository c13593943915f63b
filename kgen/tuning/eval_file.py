"""The evaluation of one file, by whoever it was written: the path of a sweep's candidates, for one of them.

    file -> candidate -> build -> evaluator -> store (committed at once)
    right -> timed again, interleaved with the baselines -> store

It is stored as a sweep of one candidate, of kind ``eval``. The file is judged anew each time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Mapping

from kgen import events, paths
from kgen.candidate import Candidate, Trust
from kgen.errors import InputError
from kgen.evaluator.correctness.validate import Failure
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.protocol import BASELINES, Accuracy, BuildReport, Evaluation, Phase, Status, Timing
from kgen.machine import find_own_tools, keep_bytecode, resolve_device
from kgen.problem import Problem
from kgen.statistics import median_ms, ratio_interval
from kgen.store import Store

#: Seconds of the timing beside the baselines, where none are given.
TIMING_SECONDS = {"cuda": 20.0, "cpu": 12.0}

#: The plan of a file from outside.
OUTSIDE = "outside"


@dataclass(frozen=True)
class EvalRequest:
    """What is asked for: ``source`` is the text of ``file``, ``seconds`` how long it is timed beside the baselines.

    ``cache`` says whether each timed call finds the device's cache ``cold`` (flushed) or ``warm``.
    """

    problem: Problem
    file: str
    source: str
    device: str | None = None
    accuracy: Accuracy = Accuracy.FP32
    baselines: tuple[str, ...] = BASELINES
    seconds: float | None = None
    cache: str = "cold"
    profile: bool = False  #: label the share of time in own kernels
    db: str | None = None


def read_source(file: Path) -> str:
    """The text of a candidate's file, byte for byte. Raises :class:`InputError` where it has none."""
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


def run(request: EvalRequest, on_event: events.Listener) -> events.Judged:
    """Judge the file, time it beside the baselines if it is right, and keep what it came to.

    Raises :class:`kgen.errors.KgenError` where the problem, the device, a compiler or the database does not serve;
    what is wrong with the file is its verdict. ``KeyboardInterrupt`` goes through, with what was measured kept.
    """

    def notice(text: str) -> None:
        on_event(events.Notice(text))

    started = time.monotonic()
    find_own_tools()
    keep_bytecode(paths.bytecode())
    device = resolve_device(request.device)
    with (
        Store.open(request.db, notice=notice) as store,
        Evaluator(
            request.problem,
            device=device,
            accuracy=request.accuracy,
            home=paths.home(),
            baselines=request.baselines,
            notice=notice,
            cache=request.cache,
            profile=request.profile,
        ) as evaluator,
    ):
        return _Eval(request, store, evaluator, device, on_event, started).run()


@dataclass
class _Eval:
    request: EvalRequest
    store: Store
    evaluator: Evaluator
    device: str
    on_event: events.Listener
    started: float  # by the monotonic clock
    sweep: str = ""
    failure: Failure | None = None  # how it failed beside the baselines, after it was right
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
            self.store.finish_sweep(self.sweep, state, time.monotonic() - self.started, best)
        self.on_event(judged)
        return judged

    def _open(self) -> events.Opened:
        """Begin in the store, and tell of it."""
        problem, environment = self.evaluator.problem, self.evaluator.environment
        health = self.evaluator.health()
        paths.write_candidate(self.candidate.id, self.candidate.source)
        self.store.add_problem(problem, health)
        self.store.add_environment(environment)
        self.sweep = self.store.start_sweep(
            problem=problem,
            environment=environment,
            accuracy=self.request.accuracy,
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
        )
        opened = events.Opened(
            sweep=self.sweep,
            file=self.request.file,
            candidate=self.candidate.id,
            problem=problem,
            device=self.device,
            environment=environment,
            accuracy=self.request.accuracy,
            health=health,
            db=self.store.name,
        )
        self.on_event(opened)
        return opened

    def _judge(self, opened: events.Opened) -> events.Judged:
        """Build, validate and screen the file; where it is right, time it beside the baselines."""
        self._step("building")
        build = self.evaluator.builder().build(self.candidate.source)
        self._step("loading, validating, preparing the baselines, timing alone")
        evaluation = self.evaluator.evaluate(self.candidate, build)
        evaluation_id = self._keep(evaluation)
        if evaluation.status is not Status.OK:
            return events.Judged(opened, evaluation_id, evaluation)
        self._step(f"timing beside {', '.join(self.request.baselines)}")
        own, baselines = self._finals(build)
        if own is None:
            evaluation = self._overturned(evaluation, evaluation_id)
            return events.Judged(opened, evaluation_id, evaluation)
        return self._timed(events.Judged(opened, evaluation_id, evaluation, own, median_ms(own)), baselines)

    def _keep(self, evaluation: Evaluation) -> str:
        """Store the evaluation with its figures beside the baselines' screening; its id."""
        ms = speedup = None
        if evaluation.status is Status.OK and evaluation.timing:
            screened = self.evaluator.baselines()
            self._keep_timings(screened)
            ms = median_ms(evaluation.timing)
            speedup = min(map(median_ms, screened)) / ms if screened else None
        return self.store.add_evaluation(
            self.sweep,
            self.candidate,
            evaluation,
            environment_id=self.evaluator.environment.id,
            median_ms=ms,
            speedup=speedup,
        )

    def _finals(self, build: BuildReport) -> tuple[Timing | None, dict[str, Timing]]:
        """The candidate's timing interleaved with the baselines' (``None`` where it failed), and theirs by name."""
        seconds = self.request.seconds or TIMING_SECONDS[self.evaluator.hardware.device_type]
        timings = self.evaluator.finals([(self.candidate, build)], seconds=seconds, failed=self._fail)
        self._keep_timings(timings)
        by_subject = {timing.subject: timing for timing in timings}
        return by_subject.pop(self.candidate.id, None), by_subject

    def _timed(self, judged: events.Judged, baselines: Mapping[str, Timing]) -> events.Judged:
        """The verdict with its figures over the fastest baseline, which are kept."""
        assert judged.timing and judged.median_ms
        if not baselines:
            return judged
        medians = {name: median_ms(timing) for name, timing in baselines.items()}
        fastest = min(medians, key=medians.__getitem__)
        speedup = ratio_interval(baselines[fastest], judged.timing)
        self.store.set_result(
            self.sweep,
            self.candidate.id,
            median_ms=judged.median_ms,
            speedup=speedup.mid,
            speedup_low=speedup.low,
            speedup_high=speedup.high,
            baselines=medians,
            error_ratio=judged.evaluation.error_ratio,
            tie=False,
        )
        return replace(judged, baselines=tuple(medians.items()), baseline=fastest, speedup=speedup)

    def _fail(self, candidate: str, failure: Failure) -> None:
        self.failure = failure

    def _overturned(self, evaluation: Evaluation, evaluation_id: str) -> Evaluation:
        """The verdict on a file that was right once, and then failed beside the baselines."""
        assert self.failure is not None
        status, reason = self.failure.status, f"timed again beside PyTorch: {self.failure.reason}"
        self.store.overturn(evaluation_id, status, Phase.TIME, reason)
        return replace(evaluation, status=status, phase=Phase.TIME, reason=reason)

    def _keep_timings(self, timings: tuple[Timing, ...]) -> None:
        self.store.add_timings(self.sweep, self.evaluator.environment.id, self.request.accuracy, timings)

    def _step(self, text: str) -> None:
        self.on_event(events.Step(text))
