"""A sweep: the one conductor of search, builds, evaluator and store.

    search.ask -> candidate -> [build pool] -> [devices] -> store (committed at once) -> search.tell
    leaders -> timed again, interleaved with each other and the baselines -> result

Killed at any point, the same command goes on: what was evaluated is in the store, and is found there.
"""

from __future__ import annotations

import contextlib
import heapq
import io
import logging
import os
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Callable, Iterator, Sequence

from kgen import events, paths, roofline, statistics
from kgen.candidate import SHORT, Candidate, Trust
from kgen.compiler.capture import Capture, capture
from kgen.errors import CaptureError, DiskError, StoreBusyError, StoreError
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.pool import DevicePool, SourceBuilder
from kgen.evaluator.protocol import BASELINES, Accuracy, BuildReport, Evaluation, Health, Phase, Status, Timing
from kgen.machine import find_own_tools, keep_bytecode, resolve_devices
from kgen.problem import LoadedProblem, Problem, load
from kgen.statistics import Interval, median_ms, ratio_interval
from kgen.store import Store, queries
from kgen.tuning.design import Design
from kgen.tuning.pipeline import Pipeline, Verdict, twin
from kgen.tuning.search import STRATEGIES, Point, Search, chosen

#: How many candidates are tried where no budget is given.
DEFAULT_BUDGET = {"cuda": 96, "cpu": 40}
#: How many builds at once keep up with one candidate being judged: of those that share a GPU, each takes longer.
BUILDS_AHEAD = {"cuda": 1, "cpu": 3}
#: Which part of the budget a search begins with that the store knows to be fast, and how many with the same plan.
KNOWN_PART, KNOWN_OF_EACH = 0.125, 3
#: How many of the fastest are timed again, and how far behind the fastest one of them may be.
FINALISTS = 5
FINALIST_MARGIN = 1.10
#: Seconds of the finals, and which part of the time that a sweep is given they take at most.
FINAL_SECONDS = {"cuda": 20.0, "cpu": 12.0}
FINAL_PART = 0.25
#: For the interval of a screening, which is shown and decides nothing.
_SCREENING_RESAMPLES = 400


@dataclass(frozen=True)
class SweepRequest:
    """What a sweep is asked for.

    ``budget`` bounds the candidates tried and ``seconds`` the whole sweep, finals included; one candidate is tried in
    any case. ``device`` may name several GPUs that are alike (``cuda:0,cuda:1``, ``cuda:all``). ``strategy`` is one of
    :data:`kgen.tuning.search.STRATEGIES`; by default everything that fits the budget is tried, and what does not is searched.
    ``fresh`` neither goes on with an earlier sweep nor takes over results.
    """

    problem: Problem
    device: str | None = None
    accuracy: Accuracy = Accuracy.FP32
    budget: int | None = None
    seconds: float | None = None
    strategy: str | None = None
    seed: int = 0
    jobs: int | None = None
    baselines: tuple[str, ...] = BASELINES
    fresh: bool = False
    db: str | None = None


def open_devices(request: SweepRequest, notice: Callable[[str], None]) -> DevicePool:
    """An evaluator for each device that is asked for."""
    return DevicePool(
        [
            Evaluator(
                request.problem,
                device=device,
                accuracy=request.accuracy,
                home=paths.home(),
                baselines=request.baselines,
                notice=notice,
                trust=Trust.OWN,
            )
            for device in resolve_devices(request.device)
        ]
    )


def run(
    request: SweepRequest,
    on_event: events.Listener,
    open_devices: Callable[[SweepRequest, Callable[[str], None]], DevicePool] = open_devices,
) -> events.Finished:
    """Run a sweep to its end, its budget, or an interrupt.

    Raises :class:`kgen.errors.KgenError` where the problem, the device, a compiler or the database does not serve; a
    candidate's failure is never raised. ``KeyboardInterrupt`` ends the sweep as interrupted, with what it has.
    """

    def notice(text: str) -> None:
        on_event(events.Notice(text))

    started = time.monotonic()
    if request.strategy:
        STRATEGIES[request.strategy].require()
    find_own_tools()
    keep_bytecode(paths.bytecode())
    with Store.open(request.db, notice=notice) as store, open_devices(request, notice) as devices:
        loaded = load(request.problem)
        try:
            graphs = captured(loaded)  # while the devices get ready
        except CaptureError:
            devices.wait()  # which says what is wrong with the problem itself
            raise
        devices.wait()
        problem = devices.first.problem
        if problem.modes != loaded.problem.modes:  # its constructor leaves another mode than most do
            graphs = captured(replace(loaded, problem=problem))
        design = Design(problem, graphs, devices.first.hardware, request.accuracy)
        return _Sweep(request, store, devices, design, on_event, started).run()


def captured(loaded: LoadedProblem) -> Capture:
    """The problem's graphs. Where torch cannot export, it prints and logs at length; its error says enough."""
    logged = logging.root.manager.disable
    logging.disable()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return capture(loaded)
    finally:
        logging.disable(logged)


def promising(store: Store, sweep: str, design: Design, most: int) -> list[Point]:
    """What a search begins with: the fastest that the store knows of this problem and of others, at any sizes, with the
    same plans, as far as the design has it."""
    known = queries.known(store, sweep, [option.name for option in design.options], KNOWN_OF_EACH)
    points = (design.point(of.plan, of.params) for of in known)
    return list(islice(dict.fromkeys(point for point in points if point is not None), most))


@dataclass(frozen=True)
class _Right:
    """A candidate that was right, with its screening."""

    candidate: Candidate
    evaluation: Evaluation
    ms: float
    speedup: Interval | None


@dataclass
class _Sweep:
    request: SweepRequest
    store: Store
    devices: DevicePool
    design: Design
    on_event: events.Listener
    started: float  # by the monotonic clock
    sweep: str = ""
    number: int = 0
    counts: Counter = field(default_factory=Counter)
    least: dict[str, float] = field(default_factory=dict)  # seconds of judging by phase, without what is done once
    right: list[_Right] = field(default_factory=list)  # the fastest of them
    milliseconds: dict[str, float] = field(default_factory=dict)  # of the right, by the beginnings of their ids
    judged: dict[str, Evaluation] = field(default_factory=dict)  # found done in this sweep before
    baselines: dict[str, tuple[Timing, ...]] = field(default_factory=dict)  # by device
    health: "Future[Health] | None" = None

    @property
    def problem(self) -> Problem:
        return self.design.problem

    @property
    def budget(self) -> int:
        asked = self.request.strategy and STRATEGIES[self.request.strategy].most(self.design.options)
        return self.request.budget or asked or DEFAULT_BUDGET[self.design.hardware.device_type]

    @cached_property
    def strategy(self) -> str:
        """The name of the strategy, whether it was asked for or not."""
        return self.request.strategy or chosen(self.design.options, self.budget)

    @property
    def device(self) -> str:
        """The names of all devices."""
        return ",".join(evaluator.device for evaluator in self.devices.evaluators)

    def run(self) -> events.Finished:
        jobs = self.request.jobs or max(1, len(os.sched_getaffinity(0)))
        builder = self.devices.first.builder()
        pipeline = Pipeline(builder, self.devices, jobs, self._built)
        self._open()
        try:
            self._begin()
            self._search(pipeline, _ahead(jobs, self.devices.at_once, self.design.hardware.device_type))
            self._keep_health(wait=True)
            return self._finish("finished", self._finals(builder))
        except KeyboardInterrupt:
            return self._finish("interrupted", self._screened())
        except StoreBusyError:
            raise  # it stays as a sweep whose process has ended: the same command goes on with it
        except Exception:
            with contextlib.suppress(StoreError, DiskError):
                self.store.finish_sweep(self.sweep, "failed", time.monotonic() - self.started, None)
            raise
        finally:
            pipeline.close()

    def _finish(self, state: str, leaders: tuple[events.Leader, ...]) -> events.Finished:
        """End the sweep in the store, and tell of it."""
        seconds = time.monotonic() - self.started
        best = next((x.candidate for x in leaders if x.candidate and not x.control), None)
        self.store.finish_sweep(self.sweep, state, seconds, best)
        beats = any(x.candidate == best and (x.speedup_low or 0.0) > 1.0 for x in leaders) if best else False
        finished = events.Finished(
            self.sweep, state, seconds, tuple((str(k), v) for k, v in self.counts.items()), leaders, best, beats
        )
        self.on_event(finished)
        return finished

    def _open(self) -> None:
        """Begin the sweep in the store, or take up one that was cut off."""
        environment = self.devices.first.environment
        self.store.add_problem(self.problem)
        self.store.add_environment(environment)
        arguments = {
            "device": self.device,
            "budget": self.request.budget,
            "seconds": self.request.seconds,
            "jobs": self.request.jobs,
            "strategy": self.strategy,
            "seed": self.request.seed,
            "baselines": self.request.baselines,
        }
        found = None
        if not self.request.fresh:
            found = self.store.unfinished_sweep(self.problem.id, environment.id, self.request.accuracy, arguments)
        if found:
            self.store.reopen_sweep(found)
            self.sweep = found
            self.judged = self.store.evaluated(found)
        else:
            self.sweep = self.store.start_sweep(
                problem=self.problem,
                environment=environment,
                accuracy=self.request.accuracy,
                device=self.device,
                arguments=arguments,
                combinations=self.design.combinations,
                budget=self.budget,
                roofline=self._basis().plain(),
            )

    def _basis(self) -> roofline.Basis:
        """The work of the problem, of the first mode where there are two, and what the device was measured to reach."""
        (_, graph), *_ = self.design.capture.graphs
        return roofline.Basis(roofline.Work.of(graph), self.design.hardware.ceilings)

    def _begin(self) -> None:
        """Keep what is ruled out, and tell of the sweep."""
        rejections = self.design.rejections()
        self.store.add_rejections(self.sweep, rejections)
        self.on_event(
            events.Started(
                sweep=self.sweep,
                problem=self.problem.title,
                mode=str(self.problem.mode),
                device=self.device,
                environment=self.devices.first.environment,
                accuracy=self.request.accuracy,
                plans=len(self.design.choices),
                combinations=self.design.combinations,
                rejected=len(rejections),
                budget=min(self.budget, self.design.combinations),
                found_done=len(self.judged),
                db=self.store.name,
                seconds=self.request.seconds,
            )
        )
        self.health = self.devices.health()

    def _keep_health(self, *, wait: bool = False) -> None:
        """Keep whether the problem can tell right from wrong, once that is known."""
        if self.health is None or not (wait or self.health.done()):
            return
        health, self.health = self.health.result(), None
        self.store.add_problem(self.problem, health)
        if not health.ok:
            self._notice(f"this problem cannot tell right from wrong: {', '.join(health.passed_by)} would be accepted")

    # ---- the loop ------------------------------------------------------------------------------------------

    def _search(self, pipeline: Pipeline, ahead: int) -> None:
        """Ask, send on its way, keep what it came to as soon as it is known, tell."""
        kind = STRATEGIES[self.strategy]
        first: list[Point] = []
        if kind.learns and not self.request.fresh:
            first = promising(self.store, self.sweep, self.design, int(KNOWN_PART * self.budget))
        search = Search(kind(self.design.options, self.request.seed, first), ahead)
        points: dict[str, Point] = {}  # of every candidate that is on its way
        seen: set[str] = set()
        while True:
            if self._out_of_time():
                pipeline.give_up()
            else:
                for point, candidate in self._asked(search, seen):
                    points[candidate.id] = point
                    pipeline.put(candidate, self._known(candidate))
            verdict = pipeline.next()
            if verdict is None:
                return
            search.tell(points.pop(verdict.candidate.id), self._keep(verdict))
            self._keep_health()

    def _asked(self, search: Search, seen: set[str]) -> Iterator[tuple[Point, Candidate]]:
        """The next candidates, each source once, as long as the search has some and the budget allows."""
        while len(seen) < self.budget and (point := search.ask()):
            candidate = self.design.candidate(point)
            if candidate.id in seen:
                search.tell(point, None)
                continue
            seen.add(candidate.id)
            paths.write_candidate(candidate.id, candidate.source)
            yield point, candidate

    def _known(self, candidate: Candidate) -> Evaluation | None:
        """What the store knows of the candidate on this problem, in this environment and class."""
        found = self.judged.get(candidate.id)
        if found is not None or self.request.fresh:
            return found
        environment = self.devices.first.environment
        known = self.store.known(candidate.id, environment.id, self.request.accuracy, self.problem.id)
        # That it does what another one does says nothing here, where that other one may never be tried.
        return None if known is None or known.status is Status.DUPLICATE else known

    def _keep(self, verdict: Verdict) -> float | None:
        """Keep what became of a candidate, and report it. Returns milliseconds where it, or what it is a duplicate of,
        was right."""
        candidate, evaluation = verdict.candidate, verdict.evaluation
        if verdict.device is not None and verdict.device not in self.baselines:
            self._keep_baselines(verdict.device, verdict.baselines)
        right = self._right(verdict)
        self.number += 1
        self.counts[evaluation.status] += 1
        if not verdict.found:
            self.least |= {phase: min(s, self.least.get(phase, s)) for phase, s in evaluation.seconds}
        if right is not None:
            self.right = _fastest([*self.right, right])
            self.milliseconds[candidate.id[:SHORT]] = right.ms
        if candidate.id not in self.judged:
            self._store(verdict, right)
        return self.milliseconds.get(twin(evaluation) or candidate.id[:SHORT])

    def _store(self, verdict: Verdict, right: _Right | None) -> None:
        """Commit an evaluation to the store, and then report it."""
        ms, speedup = (right.ms, right.speedup) if right is not None else (None, None)
        self.store.add_evaluation(
            self.sweep,
            verdict.candidate,
            verdict.evaluation,
            environment_id=self.devices.first.environment.id,
            median_ms=ms,
            speedup=speedup and speedup.mid,
        )
        self.on_event(
            events.Evaluated(
                self.number, verdict.candidate, verdict.evaluation, ms, speedup, verdict.device, verdict.found
            )
        )

    def _right(self, verdict: Verdict) -> _Right | None:
        """The screening of a candidate that was right, beside the fastest baseline on its device."""
        timing = verdict.evaluation.timing
        if verdict.evaluation.status is not Status.OK or timing is None:
            return None
        fastest = min(verdict.baselines, key=median_ms, default=None)
        speedup = ratio_interval(fastest, timing, resamples=_SCREENING_RESAMPLES) if fastest else None
        return _Right(verdict.candidate, verdict.evaluation, median_ms(timing), speedup)

    def _built(self, candidate: Candidate, build: BuildReport) -> None:
        self.on_event(events.Built(candidate.id, build.ok, build.cached, build.seconds))

    def _keep_baselines(self, device: str, timings: tuple[Timing, ...]) -> None:
        self.baselines[device] = timings
        environment = self.devices.first.environment
        self.store.add_timings(self.sweep, environment.id, self.request.accuracy, timings)
        self.on_event(events.Measured(tuple((t.subject, median_ms(t)) for t in timings), device))

    @property
    def _final_seconds(self) -> float:
        """How long the finals take."""
        seconds = FINAL_SECONDS[self.design.hardware.device_type]
        return min(seconds, FINAL_PART * self.request.seconds) if self.request.seconds else seconds

    @property
    def _ending_seconds(self) -> float:
        """How long it takes to end: what is on its way on a device is judged, timings in turn; then the leaders are loaded
        again, and timed."""
        if self.number < 2:  # the first one waited for what is done once
            return self._final_seconds
        times = {Phase.LOAD: 1 + FINALISTS, Phase.VALIDATE: 1, Phase.TIME: self.devices.first.at_once}
        return self._final_seconds + sum(n * self.least.get(phase, 0.0) for phase, n in times.items())

    def _out_of_time(self) -> bool:
        """Whether it is time for the finals."""
        if self.request.seconds is None or not self.number:
            return False
        return time.monotonic() - self.started >= self.request.seconds - self._ending_seconds

    def _notice(self, text: str) -> None:
        self.on_event(events.Notice(text))

    # ---- the finals ----------------------------------------------------------------------------------------

    def _finalists(self) -> list[_Right]:
        """The fastest candidates with work of their own, by their screening."""
        ranked = sorted((r for r in self.right if not r.candidate.control), key=lambda r: r.ms)
        return [r for r in ranked[:FINALISTS] if r.ms <= FINALIST_MARGIN * ranked[0].ms]

    def _finals(self, builder: SourceBuilder) -> tuple[events.Leader, ...]:
        """Time the leaders again on the first device, interleaved with the baselines, and keep what each came to."""
        finalists = self._finalists()
        if not finalists:
            return self._screened()
        self.on_event(events.Finals(tuple(r.candidate.id for r in finalists)))
        entries = [(r.candidate, builder.build(r.candidate.source)) for r in finalists]
        timings = self.devices.first.finals(entries, seconds=self._final_seconds)
        self.store.add_timings(self.sweep, self.devices.first.environment.id, self.request.accuracy, timings)
        by_id = {r.candidate.id: r for r in finalists}
        baselines = [t for t in timings if t.subject not in by_id]
        candidates = [t for t in timings if t.subject in by_id]
        if not baselines or not candidates:
            return self._screened()
        leaders = _ranked(candidates, baselines, by_id)
        medians = {t.subject: median_ms(t) for t in baselines}
        for leader in leaders:
            if leader.candidate:
                self.store.set_result(
                    self.sweep,
                    leader.candidate,
                    median_ms=leader.median_ms,
                    speedup=leader.speedup,
                    speedup_low=leader.speedup_low,
                    speedup_high=leader.speedup_high,
                    baselines=medians,
                    error_ratio=leader.error_ratio,
                    tie=leader.tie,
                )
        return leaders

    def _screened(self) -> tuple[events.Leader, ...]:
        """Leaders by their screening alone: its intervals are of moments apart, so none counts as a proven speedup."""
        medians = {t.subject: median_ms(t) for timings in self.baselines.values() for t in timings}
        fastest = min(medians.values(), default=None)
        rows = [
            _leader(r, r.ms, r.speedup and r.speedup.mid, None, False)
            for r in heapq.nsmallest(FINALISTS, self.right, key=_by_ms)
        ]
        rows += [_baseline(name, ms, fastest / ms if fastest else None, None) for name, ms in medians.items()]
        return tuple(sorted(rows, key=lambda row: row.median_ms))


def _ahead(jobs: int, at_once: int, device_type: str) -> int:
    """How many candidates are on their way: those that are judged, as many that are built, and some that build. With
    more, a search that learns would ask for many before it is told of one."""
    return 2 * at_once + min(jobs, BUILDS_AHEAD[device_type] * at_once)


def _by_ms(right: _Right) -> float:
    return right.ms


def _fastest(right: Sequence[_Right]) -> list[_Right]:
    """Those of which finalists are chosen, and which a table shows: the fastest with work of their own, and without."""
    kinds = [r for r in right if not r.candidate.control], [r for r in right if r.candidate.control]
    return [r for kind in kinds for r in heapq.nsmallest(FINALISTS, kind, key=_by_ms)]


def _ranked(
    candidates: list[Timing], baselines: list[Timing], by_id: dict[str, _Right]
) -> tuple[events.Leader, ...]:
    """Finalists and baselines from the best down, with their speedups over the fastest baseline."""

    def tie_break(timing: Timing) -> tuple[int, int, str]:
        candidate = by_id[timing.subject].candidate
        return candidate.kernels, candidate.source_lines, candidate.id

    fastest = min(baselines, key=median_ms)
    rows = []
    for rank in statistics.leaders(candidates, tie_break):
        interval = ratio_interval(fastest, rank.timing)
        rows.append(_leader(by_id[rank.timing.subject], median_ms(rank.timing), interval.mid, interval, rank.tie))
    for timing in sorted(baselines, key=median_ms):
        interval = ratio_interval(fastest, timing)
        rows.append(_baseline(timing.subject, median_ms(timing), interval.mid, interval))
    return tuple(rows)


def _leader(right: _Right, ms: float, speedup: float | None, interval: Interval | None, tie: bool) -> events.Leader:
    candidate = right.candidate
    return events.Leader(
        candidate=candidate.id,
        name=candidate.plan,
        params=", ".join(f"{name}={value}" for name, value in candidate.params.items()),
        median_ms=ms,
        speedup=speedup,
        speedup_low=interval and interval.low,
        speedup_high=interval and interval.high,
        error_ratio=right.evaluation.error_ratio,
        tie=tie,
        control=candidate.control,
    )


def _baseline(name: str, ms: float, speedup: float | None, interval: Interval | None) -> events.Leader:
    return events.Leader(
        candidate=None,
        name=name,
        params="",
        median_ms=ms,
        speedup=speedup,
        speedup_low=interval and interval.low,
        speedup_high=interval and interval.high,
        error_ratio=None,
        tie=False,
        control=True,
    )
