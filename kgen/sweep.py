"""A sweep: the one conductor of search, builds, evaluator and store.

    search.ask -> candidate -> [build pool] -> evaluator -> store (committed at once) -> search.tell
    leaders -> timed again, interleaved with each other and the baselines -> result

Killed at any point, the same command goes on: what was evaluated is in the store, and is found there.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import logging
import os
import time
from collections import Counter, deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Callable

from kgen import events, paths, roofline, statistics, syntax
from kgen.candidate import SHORT, Candidate
from kgen.design import Design
from kgen.evaluator.build import Builder
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.protocol import BASELINES, Accuracy, BuildReport, Evaluation, Status, Timing
from kgen.graph import Capture, capture
from kgen.machine import find_own_tools, resolve_device
from kgen.problem import LoadedProblem, Problem, load
from kgen.search import STRATEGIES, Point, Search, chosen
from kgen.statistics import Interval, median_ms, ratio_interval
from kgen.store import Store

#: How many candidates are tried where no budget is given.
DEFAULT_BUDGET = {"cuda": 96, "cpu": 40}
#: How many of the fastest are timed again, and how far behind the fastest one of them may be.
FINALISTS = 5
FINALIST_MARGIN = 1.10
#: Seconds of the finals, and which part of the time that a sweep is given they take at most.
FINAL_SECONDS = {"cuda": 20.0, "cpu": 12.0}
FINAL_PART = 0.25


@dataclass(frozen=True)
class SweepRequest:
    """What a sweep is asked for.

    ``budget`` bounds the candidates tried and ``seconds`` the whole sweep, finals included; one candidate is tried in
    any case. ``strategy`` is one of :data:`kgen.search.STRATEGIES`; by default everything that fits the budget is tried,
    and what does not is searched. ``fresh`` neither goes on with an earlier sweep nor takes over results.
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


Listener = Callable[[events.Event], None]


def run(request: SweepRequest, on_event: Listener) -> events.Finished:
    """Run a sweep to its end, its budget, or an interrupt.

    Raises :class:`kgen.errors.KgenError` where the problem, the device, a compiler or the database does not serve; a
    candidate's failure is never raised. ``KeyboardInterrupt`` ends the sweep as interrupted, with what it has.
    """

    def notice(text: str) -> None:
        on_event(events.Notice(text))

    started = time.monotonic()
    find_own_tools()
    device = resolve_device(request.device)
    with Store.open(request.db, notice=notice) as store:
        loaded = load(request.problem)
        home = paths.home()
        with Evaluator(
            request.problem,
            device=device,
            accuracy=request.accuracy,
            home=home,
            baselines=request.baselines,
            notice=notice,
        ) as evaluator:
            problem = evaluator.problem
            graphs = captured(replace(loaded, problem=problem))
            design = Design(problem, graphs, evaluator.hardware, evaluator.accuracy)
            return _Sweep(request, store, evaluator, design, device, on_event, started).run()


def captured(loaded: LoadedProblem) -> Capture:
    """The problem's graphs. Where torch cannot export, it prints and logs at length; its error says enough."""
    logged = logging.root.manager.disable
    logging.disable()
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return capture(loaded)
    finally:
        logging.disable(logged)


@dataclass
class _Entry:
    """A candidate on its way: rendered, building, judged."""

    point: Point
    candidate: Candidate
    building: "Future[BuildReport] | None" = None
    taken_over: Evaluation | None = None


@dataclass
class _Right:
    """A candidate that was right, with its screening."""

    candidate: Candidate
    build: BuildReport
    evaluation: Evaluation
    ms: float


@dataclass
class _Sweep:
    request: SweepRequest
    store: Store
    evaluator: Evaluator
    design: Design
    device: str
    on_event: Listener
    started: float  # by the monotonic clock
    sweep: str = ""
    number: int = 0
    counts: Counter = field(default_factory=Counter)
    right: list[_Right] = field(default_factory=list)
    binaries: dict[str, str] = field(default_factory=dict)  # what a candidate compiles and runs -> its id
    judged: dict[str, Evaluation] = field(default_factory=dict)  # found done in this sweep before
    baseline_ms: dict[str, float] = field(default_factory=dict)

    @property
    def problem(self) -> Problem:
        return self.design.problem

    @property
    def budget(self) -> int:
        return self.request.budget or DEFAULT_BUDGET[self.design.hardware.device_type]

    @cached_property
    def strategy(self) -> str:
        """The name of the strategy, whether it was asked for or not."""
        return self.request.strategy or chosen(self.design.options, self.budget)

    def run(self) -> events.Finished:
        jobs = self.request.jobs or max(1, len(os.sched_getaffinity(0)))
        pool = ThreadPoolExecutor(jobs, thread_name_prefix="kgen-build")
        state = "failed"
        leaders: tuple[events.Leader, ...] = ()
        self._open()
        try:
            self._begin()
            self._search(self.evaluator.builder(), pool, ahead=2 * jobs)
            leaders = self._finals()
            state = "finished"
        except KeyboardInterrupt:
            state = "interrupted"
            leaders = self._screened()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
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
        environment = self.evaluator.environment
        self.store.add_problem(self.problem, self.evaluator.health())
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
                environment=self.evaluator.environment,
                accuracy=self.request.accuracy,
                plans=len(self.design.choices),
                combinations=self.design.combinations,
                rejected=len(rejections),
                budget=min(self.budget, self.design.combinations),
                found_done=len(self.judged),
                db=self.store.name,
            )
        )
        health = self.evaluator.health()
        if not health.ok:
            self._notice(f"this problem cannot tell right from wrong: {', '.join(health.passed_by)} would be accepted")

    # ---- the loop ------------------------------------------------------------------------------------------

    def _search(self, builder: Builder, pool: ThreadPoolExecutor, ahead: int) -> None:
        """Ask, build ahead, judge, tell.

        Candidates are judged in the order asked for, whichever is built first: so a sweep that was cut off asks for
        the same ones again, and finds them done.
        """
        search = Search(STRATEGIES[self.strategy](self.design.options, self.request.seed), ahead)
        waiting: deque[_Entry] = deque()
        seen: set[str] = set()
        while not self._out_of_time():
            while len(waiting) < ahead and (entry := self._entry(search, seen)):
                if entry.taken_over is None or entry.taken_over.status is Status.OK:
                    entry.building = pool.submit(builder.build, entry.candidate.source)
                waiting.append(entry)
            if not waiting:
                break
            entry = waiting.popleft()
            search.tell(entry.point, self._judge(entry))

    def _entry(self, search: Search, seen: set[str]) -> _Entry | None:
        """The next candidate to judge, each source once; ``None`` where there is none for now, or in the budget."""
        while len(seen) < self.budget and (point := search.ask()):
            candidate = self.design.candidate(point)
            if candidate.id in seen:
                search.tell(point, None)
                continue
            seen.add(candidate.id)
            paths.write_candidate(candidate.id, candidate.source)
            return _Entry(point, candidate, taken_over=self._known(candidate))
        return None

    def _known(self, candidate: Candidate) -> Evaluation | None:
        """What the store knows of the candidate on this problem, in this environment and class."""
        found = self.judged.get(candidate.id)
        if found is not None or self.request.fresh:
            return found
        known = self.store.known(candidate.id, self.evaluator.environment.id, self.request.accuracy, self.problem.id)
        # That it does what another one does says nothing here, where that other one may never be tried.
        return None if known is None or known.status is Status.DUPLICATE else known

    def _judge(self, entry: _Entry) -> float | None:
        """Evaluate one candidate, keep what became of it, and report it. Returns milliseconds where it was right."""
        candidate = entry.candidate
        build = entry.building.result() if entry.building else None
        evaluation = entry.taken_over or self._duplicate(candidate, build) or self.evaluator.evaluate(candidate, build)
        if not self.baseline_ms:
            self._measure_baselines()
        ms = median_ms(evaluation.timing) if evaluation.status is Status.OK and evaluation.timing else None
        fastest = min(self.baseline_ms.values(), default=None)
        speedup = fastest / ms if ms and fastest else None
        self.store.add_evaluation(
            self.sweep,
            candidate,
            evaluation,
            environment_id=self.evaluator.environment.id,
            median_ms=ms,
            speedup=speedup,
        )
        self.number += 1
        self.counts[evaluation.status] += 1
        if ms is not None and build is not None:
            self.right.append(_Right(candidate, build, evaluation, ms))
            self.binaries.setdefault(_substance(candidate, build), candidate.id)
        if candidate.id not in self.judged:
            self.on_event(events.Evaluated(self.number, candidate, evaluation, ms, speedup))
        return ms

    def _duplicate(self, candidate: Candidate, build: BuildReport | None) -> Evaluation | None:
        """The verdict on a candidate that compiles to what another one did and runs it the same way."""
        if build is None or not build.ok or build.binary is None:
            return None
        twin = self.binaries.get(_substance(candidate, build))
        if twin is None or twin == candidate.id:
            return None
        reason = f"the same machine code as {twin[:SHORT]}"
        return Evaluation(candidate.id, Status.DUPLICATE, reason, self.request.accuracy, build=build)

    def _measure_baselines(self) -> None:
        timings = self.evaluator.baselines()
        self.baseline_ms = {t.subject: median_ms(t) for t in timings}
        self.store.add_timings(self.sweep, self.evaluator.environment.id, self.request.accuracy, timings)
        self.on_event(events.Measured(tuple(self.baseline_ms.items())))

    @property
    def _final_seconds(self) -> float:
        """How long the finals take."""
        seconds = FINAL_SECONDS[self.design.hardware.device_type]
        return min(seconds, FINAL_PART * self.request.seconds) if self.request.seconds else seconds

    def _out_of_time(self) -> bool:
        """Whether it is time for the finals."""
        if self.request.seconds is None or not self.number:
            return False
        return time.monotonic() - self.started >= self.request.seconds - self._final_seconds

    def _notice(self, text: str) -> None:
        self.on_event(events.Notice(text))

    # ---- the finals ----------------------------------------------------------------------------------------

    def _finalists(self) -> list[_Right]:
        """The fastest candidates with work of their own, by their screening."""
        ranked = sorted((r for r in self.right if not r.candidate.control), key=lambda r: r.ms)
        return [r for r in ranked[:FINALISTS] if r.ms <= FINALIST_MARGIN * ranked[0].ms]

    def _finals(self) -> tuple[events.Leader, ...]:
        """Time the leaders again, interleaved with the baselines, and keep what each came to."""
        finalists = self._finalists()
        if not finalists:
            return self._screened()
        self.on_event(events.Finals(tuple(r.candidate.id for r in finalists)))
        timings = self.evaluator.finals([(r.candidate, r.build) for r in finalists], seconds=self._final_seconds)
        self.store.add_timings(self.sweep, self.evaluator.environment.id, self.request.accuracy, timings)
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
        """Leaders by their screening alone: no interval, so none of them counts as a proven speedup."""
        fastest = min(self.baseline_ms.values(), default=None)
        rows = [
            _leader(r, r.ms, fastest / r.ms if fastest else None, None, False)
            for r in sorted(self.right, key=lambda r: r.ms)[:FINALISTS]
        ]
        rows += [_baseline(name, ms, fastest / ms if fastest else None, None) for name, ms in self.baseline_ms.items()]
        return tuple(sorted(rows, key=lambda row: row.median_ms))


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


def _substance(candidate: Candidate, build: BuildReport) -> str:
    """What a candidate does, whatever its comments and names say: its machine code and the statements around it."""
    tree = syntax.parse(candidate.source)
    named = {"NAME", "CUDA_SOURCE", "CPP_SOURCE"}
    kept = [
        node
        for number, node in enumerate(tree.body)
        if not (number == 0 and isinstance(node, ast.Expr))
        and not (isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in named)
    ]
    text = f"{build.binary}\0{ast.dump(ast.Module(kept, []))}"
    return hashlib.sha256(text.encode()).hexdigest()
