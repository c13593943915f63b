"""A sweep: conducts search, builds, evaluator and store.

    search.ask -> candidate -> [build pool] -> [devices] -> database (committed at once) -> search.tell
    networks: first candidates, then kernel tasks (kgen.tuning.tasks), then candidates put together from them
    leaders -> timed again, interleaved with each other and the baselines -> result

A sweep may be killed at any point. The same command continues it, because every evaluation is in the store.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import time
from collections import Counter
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from traceback import format_exception
from typing import Any, Callable, Iterator, Sequence

from kgen import events, paths, statistics
from kgen.candidate import SHORT, Candidate
from kgen.devices import roofline
from kgen.devices.hardware import lacks_instructions
from kgen.devices.kinds import HOST, KINDS
from kgen.devices.machine import find_own_tools, keep_bytecode
from kgen.errors import (
    DatabaseBusyError,
    DatabaseError,
    DiskError,
    EvaluatorError,
    InputError,
    ProblemError,
    RenderError,
)
from kgen.evaluator.evaluator import Evaluator
from kgen.evaluator.pool import DevicePool, SourceBuilder
from kgen.problems.problem import Problem
from kgen.protocol import BuildReport, Evaluation, Health, Status, Timing
from kgen.statistics import Interval, median_ms, ratio_interval
from kgen.store import Database, queries, tasks as stored_tasks
from kgen.tuning import attempts, launching, precision, time_budget
from kgen.tuning.capturing import capture_apart
from kgen.tuning.design import Design
from kgen.tuning.equal_sweeps import one_at_a_time
from kgen.tuning.network import catalogue, is_network, with_library, with_regions
from kgen.tuning.opening import OpenDevices, SweepRequest, open_devices
from kgen.tuning.pipeline import Outcome, Pipeline, original
from kgen.tuning.search import STRATEGIES, TASKS, Point, Search, chosen
from kgen.tuning.search.assembled import Assembled
from kgen.tuning.search.listed import Listed
from kgen.tuning.tasks import assembly
from kgen.tuning.tasks.bench import Place
from kgen.tuning.tasks.parts import Catalogue
from kgen.tuning.tasks.task import KernelTask
from kgen.tuning.tasks.tuner import Tuner
from kgen.tuning.time_budget import LEAST_FINAL_SECONDS, TimeBudget

HOPELESS_TRIES = 2  # candidates of each plan on average; limit where no plan is predicted to beat the library
KNOWN_PART = 0.125  # share of the budget; limit of warm-start points
KNOWN_OF_EACH = 3  # warm-start points; limit per problem and plan
FEWEST_FILES = 4  # candidates that are put together from tasks, at least: where the time is too short for them, none is tuned
WHOLE_FILES = 12  # candidates of a network without another budget: its kernels are tuned as tasks
FINALISTS = 5  # candidates; limit of those that are timed again
FINALIST_MARGIN = 1.10  # times the fastest screening; limit for a finalist
CUT_SECONDS, CUT_CALLS = 20.0, 10  # behind the end of finals, and calls of each subject: their last rounds end; what hangs is cut
LEAST_BUDGET = 2  # candidates: the control and another one
#: Makes the candidates of a problem on devices, until a time on the monotonic clock; :func:`designed`.
Designed = Callable[[Problem, DevicePool, float], Design]

_SCREENING_RESAMPLES = 400  # bootstrap resamples; the interval of a screening is shown and decides nothing


def run(
    request: SweepRequest,
    on_event: events.Listener,
    open_devices: OpenDevices = open_devices,
    design_of: Designed | None = None,
) -> events.Finished:
    """Run a sweep to its end, its budget, or an interrupt.

    Raises :class:`kgen.errors.KgenError` for a fault of the problem, the device, a compiler or the database. The failure
    of a candidate is never raised. ``KeyboardInterrupt`` ends the sweep as interrupted, with its results so far.
    """

    def notice(text: str) -> None:
        on_event(events.Notice(text))

    if request.strategy:
        STRATEGIES[request.strategy].require()
    find_own_tools()
    keep_bytecode(paths.bytecode())
    with Database.open(request.db, notice=notice) as database, _alone(request, database, notice):
        return _run(request, database, on_event, open_devices, design_of or designed)


def _run(
    request: SweepRequest, database: Database, on_event: events.Listener, open_devices: OpenDevices, design_of: Designed
) -> events.Finished:
    started = time.monotonic()
    on_event(events.Step("starting the evaluator, capturing the graph"))
    with (
        _recorded(database, request),
        open_devices(request, on_event, started) as devices,
    ):
        design = design_of(request.problem, devices, time_budget.cut_at(request.seconds, started))
        if devices.first.hardware.device_type == HOST.name and (lacking := lacks_instructions(design.problem.dtype)):
            on_event(events.Notice(lacking))
        request = replace(request, accuracy=devices.first.accuracy)  # as it is stored
        return _Sweep(request, database, devices, design, on_event, started).run()


def designed(problem: Problem, devices: DevicePool, until: float = math.inf) -> Design:
    """All candidates of ``problem`` for the first of ``devices``. It is captured while they start, until a time on the
    monotonic clock.

    Raises :class:`kgen.errors.KgenError` for a fault of the problem or of a device.
    """
    capture = partial(capture_apart, server=devices.server, until=until)
    try:
        settled, graphs = capture(problem, HOST.name)
    except (ProblemError, EvaluatorError):
        devices.wait()  # raises the problem's own error, if it has one
        raise
    devices.wait()
    first = devices.first
    # On the device, its constructor leaves another mode, or it uses autocast.
    if first.problem.modes != settled.modes or (graphs.by_device and first.hardware.device_type != HOST.name):
        _, graphs = capture(first.problem, first.hardware.device_type)
    graphs = precision.measured(graphs.laid_out(first.layouts), first.products)
    return Design(first.problem, graphs, first.hardware, first.accuracy)


def arguments(request: SweepRequest, device: str, strategy: str | None) -> dict[str, Any]:
    """The arguments that a sweep is stored with. Equal arguments continue it. ``device`` names all devices."""
    return {
        "device": device,
        "budget": request.budget,
        "seconds": request.seconds,
        "jobs": request.jobs,
        "strategy": strategy,
        "seed": request.seed,
        "baselines": request.baselines,
        **(dict(zip(("file", "text"), request.template)) if request.template else {}),
    }


def _alone(request: SweepRequest, database: Database, notice: Callable[[str], None]) -> AbstractContextManager[None]:
    """Keeps an equal sweep of this machine waiting. A fresh sweep judges everything itself, so that none waits for it."""
    if request.fresh:
        return contextlib.nullcontext()
    problem = request.problem
    device = attempts.device_names(request.device)
    what = {
        "database": database.url if "://" in database.name else str(Path(database.name).resolve()),
        "problem": problem.source,
        "mode": problem.asked_mode,
        "accuracy": str(request.accuracy),
        **arguments(request, device, request.strategy),
    }
    return one_at_a_time(what, notice)


def _recorded(database: Database, request: SweepRequest) -> AbstractContextManager[None]:
    """Keeps in the database why a problem was refused, or why kgen failed on it."""
    device = attempts.device_names(request.device)
    asked = arguments(request, device, request.strategy)
    return attempts.recorded(database, request.problem, request.accuracy, device, asked)


def promising(database: Database, sweep: str, design: Design, most: int) -> list[Point]:
    """At most ``most`` warm-start points: the fastest stored candidates of any problem and size with the same plans.

    Points that this design does not have are left out.
    """
    known = queries.known(database, sweep, [option.name for option in design.options], KNOWN_OF_EACH)
    points = (design.point(of.plan, of.params) for of in known)
    return list(islice(dict.fromkeys(point for point in points if point is not None), most))


@dataclass(frozen=True)
class _Right:
    """A right candidate with the median and the speedup of its screening."""

    candidate: Candidate
    evaluation: Evaluation
    ms: float
    speedup: Interval | None


@dataclass
class _Sweep:
    request: SweepRequest
    database: Database
    devices: DevicePool
    design: Design
    on_event: events.Listener
    started: float  # by the monotonic clock
    sweep: str = ""
    number: int = 0
    counts: Counter = field(default_factory=Counter)
    right: list[_Right] = field(default_factory=list)  # the fastest right candidates
    milliseconds: dict[str, float] = field(default_factory=dict)  # of right candidates, by the prefix of their ids
    judged: dict[str, Evaluation] = field(default_factory=dict)  # stored in this sweep before it continued
    baselines: dict[str, tuple[Timing, ...]] = field(default_factory=dict)  # by device
    kept: list[events.Event] = field(default_factory=list)  # told after the next commit
    health: "Future[Health] | None" = None
    health_asked: bool = False
    unrendered: int = 0  # points that failed to render
    beyond: int = 0  # candidates that may be tried beyond the budget: the fastest one, launched in other ways
    catalogue: Catalogue | None = None  # of a network, once its tasks are tuned
    results: assembly.Results = field(default_factory=dict)  # of these tasks
    points: dict[str, Point] = field(default_factory=dict)  # of every candidate that was tried, by its id
    answers: dict[Point, float | None] = field(default_factory=dict)  # milliseconds; None of one that failed

    @property
    def problem(self) -> Problem:
        return self.design.problem

    @property
    def budget(self) -> int:
        asked = self.request.strategy and STRATEGIES[self.request.strategy].most(self.design.options)
        if self.request.budget or asked:
            return max(self.request.budget or asked, LEAST_BUDGET)
        most = KINDS[self.design.hardware.device_type].budget
        if self.tunes_tasks:
            return min(most, WHOLE_FILES)
        return most if self.design.promising else min(most, HOPELESS_TRIES * len(self.design.options))

    @cached_property
    def time_budget(self) -> TimeBudget:
        """The time that is given for all of it."""
        final_seconds = KINDS[self.design.hardware.device_type].final_seconds
        return TimeBudget(self.request.seconds, self.started, final_seconds, self.devices.first.at_once)

    @cached_property
    def strategy(self) -> str:
        """The name of the requested strategy, or of the default one."""
        if self.request.strategy:
            return self.request.strategy
        return TASKS if self.tunes_tasks else chosen(self.design.options, self.budget)

    @cached_property
    def tunes_tasks(self) -> bool:
        """Whether the problem is a network, whose kernels are tuned as tasks."""
        if self.request.strategy or self.request.template or not self.place:
            return self.request.strategy == TASKS
        return is_network(self.design)

    @property
    def place(self) -> Place | None:
        """The device on which kernel tasks are measured; ``None`` where it has no bench, as on another node."""
        first = self.devices.first
        return first if isinstance(first, Evaluator) else None

    @property
    def device(self) -> str:
        """The names of all devices."""
        return self.devices.name

    def run(self) -> events.Finished:
        jobs = self.request.jobs or self.devices.jobs
        builder = self.devices.first.builder()
        beside = KINDS[self.design.hardware.device_type].accelerator  # builds take longer there than to judge the control
        pipeline = Pipeline(builder, self.devices, jobs, self._built, self._is_late, own_first=not beside)
        self._open()
        try:
            self._begin()
            self._search(pipeline, builder, jobs)
            self._judge_other_launches(pipeline)
            leaders = self._finals(builder)
            self._keep_health(wait=True)
            return self._finish("finished", leaders)
        except KeyboardInterrupt:
            return self._finish("interrupted", self._screened())
        except DatabaseBusyError:
            raise  # the sweep stays unfinished in the store, so that the same command continues it
        except Exception as error:
            with contextlib.suppress(DatabaseError, DiskError):
                self._fail(error)
            raise
        finally:
            pipeline.close()

    def _finish(self, state: str, leaders: tuple[events.Leader, ...]) -> events.Finished:
        """End the sweep in the store, and report it."""
        seconds = time.monotonic() - self.started
        best = next((x.candidate for x in leaders if x.candidate and not x.control), None)
        self.database.finish_sweep(self.sweep, state, seconds, best)
        beats = any(x.candidate == best and (x.speedup_low or 0.0) > 1.0 for x in leaders) if best else False
        finished = events.Finished(
            self.sweep, state, seconds, tuple((str(k), v) for k, v in self.counts.items()), leaders, best, beats
        )
        self.on_event(finished)
        return finished

    def _fail(self, error: Exception) -> None:
        """End the sweep as failed. A refused problem leaves no sweep behind."""
        if isinstance(error, InputError) and not self.number and not self.judged:
            self.database.drop_sweep(self.sweep)
        else:
            self.database.finish_sweep(self.sweep, "failed", time.monotonic() - self.started, None)

    def _open(self) -> None:
        """Start the sweep in the store, or reopen an unfinished one with the same arguments."""
        environment = self.devices.first.environment
        self.database.add_problem(self.problem)
        self.database.add_environment(environment)
        asked = arguments(self.request, self.device, self.strategy)
        found = None
        if not self.request.fresh:
            found = self.database.unfinished_sweep(self.problem.id, environment.id, self.request.accuracy, asked, self.request.kind)
        if found:
            self.database.reopen_sweep(found)
            self.sweep = found
            self.judged = self.database.evaluated(found)
        else:
            self.sweep = self.database.start_sweep(
                problem=self.problem,
                environment=environment,
                accuracy=self.request.accuracy,
                device=self.device,
                arguments=asked,
                combinations=self.design.combinations,
                budget=self.budget,
                kind=self.request.kind,
                roofline=self._basis().plain(),
                products=self.devices.first.products,
            )

    def _basis(self) -> roofline.Basis:
        """The work of the problem in its first mode, and the measured rates of the device."""
        (_, graph), *_ = self.design.capture.graphs
        return roofline.Basis(roofline.Work.of(graph), self.design.hardware.ceilings)

    def _begin(self) -> None:
        """Store the rejections, and report the start of the sweep."""
        rejections = self.design.rejections()
        self.database.add_rejections(self.sweep, rejections)
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
                db=self.database.name,
                seconds=self.request.seconds,
            )
        )
        if KINDS[self.design.hardware.device_type].accelerator:
            self._ask_health()

    def _ask_health(self) -> None:
        self.health_asked = True
        self.health = self.devices.beside(lambda device: device.health())

    def _keep_health(self, *, wait: bool = False) -> None:
        """Store the problem's health, once it is known. On a CPU it is found out behind the first right candidate, which
        needs the cores."""
        if not self.health_asked and (wait or any(not r.candidate.control for r in self.right)):
            self._ask_health()
        if self.health is None or not (wait or self.health.done()):
            return
        if not self.health.done() and (left := self.time_budget.finals_until - time.monotonic()) < math.inf:
            futures.wait([self.health], max(0.0, left))
        if wait and not self.health.done() and self.request.seconds:
            self._notice("the time is up: it is not known whether this problem tells right from wrong")
            return
        health, self.health = self.health.result(), None
        self.database.add_problem(self.problem, health)
        if not health.ok:
            self._notice(f"this problem cannot tell right from wrong: {', '.join(health.passed_by)} would be accepted")

    # ---- the loop ------------------------------------------------------------------------------------------

    def _is_late(self) -> bool:
        """Whether it is too late to begin a candidate; asked in a device's thread."""
        found_right = any(not right.candidate.control for right in self.right)
        return self.time_budget.is_late() or (found_right and self.time_budget.is_cut)

    def _search(self, pipeline: Pipeline, builder: SourceBuilder, jobs: int) -> None:
        """Try candidates until the strategy has no more of them, or the budget or the time is up."""
        ahead = _ahead(jobs, self.devices.at_once, self.design.hardware.device_type)
        kind = STRATEGIES[self.strategy]
        first = [self.design.control]  # judged in every sweep: without a winner, it decides the verdict
        if self.strategy == TASKS and self.place:
            first += self._opening()
            listed = Search(Listed(self.design.options, self.request.seed, first), ahead)
            times = self._tuned(builder, jobs, self.place, lambda: self._judge_all(pipeline, listed))
            kind = partial(Assembled, times=times) if times else STRATEGIES[chosen(self.design.options, self.budget)]
        elif kind.learns and not self.request.fresh:
            first += promising(self.database, self.sweep, self.design, int(KNOWN_PART * self.budget))
        self._judge_all(pipeline, Search(kind(self.design.options, self.request.seed, first), ahead))

    def _judge_other_launches(self, pipeline: Pipeline) -> None:
        """Judge the fastest candidate launched in other ways, where the host takes longer for it than the device."""
        best, *_ = self._finalists() or [None]
        if best is None:
            return
        points = launching.others(self.design, self.points[best.candidate.id], best.evaluation.timing)
        if points:
            self.beyond = len(points)
            self._judge_all(pipeline, Search(Listed(self.design.options, self.request.seed, points), len(points)))

    def _opening(self) -> list[Point]:
        """The simplest points of the plan that is predicted best, and of the best with fewer kernels: first results of a network."""
        options = self.design.options
        own = sorted((n for n, o in enumerate(options) if o.kernels and o.plainest is not None), key=lambda n: options[n].predicted_ms)
        fewer = [n for n in own if len(options[n].kernels) < len(options[own[0]].kernels)]
        return [Point(n, options[n].plainest or ()) for n in (*own[:1], *fewer[:1])]

    def _tuned(
        self, builder: SourceBuilder, jobs: int, place: Place, judge_first: Callable[[], None]
    ) -> dict[int, assembly.OptionTimes] | None:
        """Judge the first candidates, then tune the network's tasks. Returns the times of its options.

        Beside an accelerator, tasks are built from the start. ``None`` where there is no plan with kernels, or too little time.
        """
        beside = KINDS[self.design.hardware.device_type].accelerator
        with ThreadPoolExecutor(1, thread_name_prefix="kgen-tasks") as thread:
            making = thread.submit(self._tuner, builder, jobs, place, start=True) if beside else None
            try:
                judge_first()
                until = self.time_budget.tasks_until(FEWEST_FILES)
                if until is None or not any(option.kernels for option in self.design.options):
                    return None
                tuner = making.result() if making else self._tuner(builder, jobs, place)
                try:
                    tuner.run(until)
                finally:
                    tuner.close()
            finally:
                if making and not making.cancel() and making.exception() is None:
                    making.result().close()
        self.on_event(events.Step("trying candidates of the best kernels"))
        self.results = {key: work.found for key, work in tuner.works.items()}
        put_together = with_regions(self.design, tuner.catalogue, self.results, place.environment)
        self.catalogue = with_library(self.design, put_together, self.results)
        return assembly.option_times(self.catalogue, self.results)

    def _tuner(self, builder: SourceBuilder, jobs: int, place: Place, start: bool = False) -> Tuner:
        tuner = Tuner(
            catalogue(self.design, place.environment), place, builder, self.database, self.sweep, jobs=jobs, home=paths.home(),
            fresh=self.request.fresh, on_event=self.on_event, failed=self._lose_task,
        )  # fmt: skip
        if start:
            tuner.start()
        return tuner

    def _lose_task(self, task: KernelTask, error: Exception) -> None:
        """Leave a task out of which no file renders: that is a bug of kgen."""
        log = paths.bug_report(self.sweep, f"{task.label}\n{''.join(format_exception(error))}")
        self._notice(f"the kernel {task.label} is not tuned: {error}; this is a bug in kgen: please report it, with {log}")

    def _judge_all(self, pipeline: Pipeline, search: Search) -> None:
        """Ask for candidates, judge them, store each evaluation at once, and tell the search."""
        for point, ms in self.answers.items():
            search.tell_known(point, ms)
        while True:
            found_right = any(not right.candidate.control for right in self.right)
            if (found_right and self.time_budget.is_cut) or self.time_budget.is_over(len(self._finalists()) + 1):
                pipeline.give_up()
            else:
                for point, candidate in self._asked(search):
                    self.points[candidate.id] = point
                    pipeline.put(candidate, self._known(candidate))
            until = self.time_budget.search_until(found_right=found_right)
            outcomes: list[Outcome] = []
            try:
                while (outcome := pipeline.next(-math.inf if outcomes else until)) is not None:
                    outcomes.append(outcome)
            finally:  # an error of one loses no other
                found = self._keep_all(outcomes)
            if not outcomes:
                if pipeline.unjudged:
                    self._notice(f"the time is up: {pipeline.unjudged} candidates are not judged to their end")
                return
            for outcome, ms in zip(outcomes, found):
                point = self.points[outcome.candidate.id]
                self.answers[point] = ms
                search.tell(point, ms, refused=outcome.evaluation.status is Status.WRONG_VALUES)
            self._keep_health()

    def _asked(self, search: Search) -> Iterator[tuple[Point, Candidate]]:
        """The next candidates, each source once, while the search has points and the budget allows."""
        while len(self.points) + self.unrendered < self.budget + self.beyond and (point := search.ask()):
            candidate = self._rendered(point)
            if candidate is None or candidate.id in self.points:
                search.tell(point, None)
                continue
            paths.write_candidate(candidate.id, candidate.source)
            yield point, candidate

    def _rendered(self, point: Point) -> Candidate | None:
        """The candidate of a point; ``None`` where rendering fails: the sweep goes on, and a log has the bug report."""
        try:
            return self.design.candidate(point)
        except RenderError as error:
            rejection = self.design.rejection(point, error)
            self.database.add_rejections(self.sweep, [rejection])
            log = paths.bug_report(self.sweep, f"{rejection.plan}\n{dict(rejection.params)}\n{''.join(format_exception(error))}")
            if not self.unrendered:
                self._notice(f"a candidate is left out, since its {error}; this is a bug in kgen: please report it, with {log}")
            self.unrendered += 1
            return None

    def _known(self, candidate: Candidate) -> Evaluation | None:
        """The stored evaluation of the candidate on this problem, in this environment and accuracy class."""
        found = self.judged.get(candidate.id)
        if found is not None or self.request.fresh:
            return found
        environment = self.devices.first.environment
        known = self.database.known(candidate.id, environment.id, self.request.accuracy, self.problem.id)
        # A stored duplicate does not count: this sweep may never try its original.
        return None if known is None or known.status is Status.DUPLICATE else known

    def _keep_all(self, outcomes: Sequence[Outcome]) -> list[float | None]:
        """Commit outcomes together, then report them. Returns the milliseconds of each; see :meth:`_keep`."""
        with self.database.together() if outcomes else contextlib.nullcontext():
            found = [self._keep(outcome) for outcome in outcomes]
        kept, self.kept = self.kept, []
        for event in kept:
            self.on_event(event)
        return found

    def _keep(self, outcome: Outcome) -> float | None:
        """Store an outcome. Returns milliseconds where the candidate, or its original, was right."""
        candidate, evaluation = outcome.candidate, outcome.evaluation
        if outcome.device is not None and len(outcome.baselines) > len(self.baselines.get(outcome.device, ())):
            self._keep_baselines(outcome.device, outcome.baselines)
        right = self._right(outcome)
        self.number += 1
        self.counts[evaluation.status] += 1
        if not outcome.found and not candidate.control:  # which takes less time, and is no try
            self.time_budget.judged(evaluation.seconds)
        if right is not None:
            self.right = _fastest([*self.right, right])
            self.milliseconds[candidate.id[:SHORT]] = right.ms
        if candidate.id not in self.judged:
            self._store(outcome, right)
        return self.milliseconds.get(original(evaluation) or candidate.id[:SHORT])

    def _store(self, outcome: Outcome, right: _Right | None) -> None:
        """Write an evaluation to the store. Its event follows the commit."""
        ms, speedup = (right.ms, right.speedup) if right is not None else (None, None)
        self.database.add_evaluation(
            self.sweep,
            outcome.candidate,
            outcome.evaluation,
            environment_id=self.devices.first.environment.id,
            median_ms=ms,
            speedup=speedup and speedup.mid,
        )
        if self.catalogue is not None and not outcome.candidate.control:
            steps = assembly.steps(self.catalogue, self.results, self.points[outcome.candidate.id])
            stored_tasks.add_steps(self.database, outcome.candidate.id, steps)
        self.kept.append(
            events.Evaluated(
                self.number, outcome.candidate, outcome.evaluation, ms, speedup, outcome.device, outcome.found
            )
        )

    def _right(self, outcome: Outcome) -> _Right | None:
        """The screening of a right candidate against the fastest baseline on its device; ``None`` for another one."""
        timing = outcome.evaluation.timing
        if outcome.evaluation.status is not Status.OK or timing is None:
            return None
        fastest = min(outcome.baselines, key=median_ms, default=None)
        speedup = ratio_interval(fastest, timing, resamples=_SCREENING_RESAMPLES) if fastest else None
        return _Right(outcome.candidate, outcome.evaluation, median_ms(timing), speedup)

    def _built(self, candidate: Candidate, build: BuildReport) -> None:
        self.on_event(events.Built(candidate.id, build.ok, build.cached, build.seconds))

    def _keep_baselines(self, device: str, timings: tuple[Timing, ...]) -> None:
        """Store the baselines that are new. Earlier screenings then compare with the fastest one."""
        before, self.baselines[device] = self.baselines.get(device, ()), timings
        environment = self.devices.first.environment
        new = [timing for timing in timings if timing not in before]
        self.database.add_timings(self.sweep, environment.id, self.request.accuracy, new)
        if before and (factor := min(map(median_ms, timings)) / min(map(median_ms, before))) < 1.0:
            self.database.scale_speedups(self.sweep, factor)
            self.right = [replace(r, speedup=r.speedup and r.speedup.times(factor)) for r in self.right]
        self.kept.append(events.Measured(tuple((t.subject, median_ms(t)) for t in timings), device))

    def _notice(self, text: str) -> None:
        self.on_event(events.Notice(text))

    # ---- the finals ----------------------------------------------------------------------------------------

    def _finalists(self) -> list[_Right]:
        """The fastest candidates with a kernel of their own, by screening; the fastest control where none is right.

        The control's speedup then comes from interleaved samples, too: a baseline's screening may have met a busy machine.
        """
        own = sorted((r for r in self.right if not r.candidate.control), key=_by_ms)
        own = launching.served(own, lambda r: (r.candidate, r.evaluation.timing))
        ranked = own or sorted(self.right, key=_by_ms)[:1]
        close = [r for r in ranked[:FINALISTS] if r.ms <= FINALIST_MARGIN * ranked[0].ms]
        beside = [median_ms(timing) for timing in self.baselines.get(self.devices.first.device, ())]
        return close[: self.time_budget.finalists([r.ms for r in close], beside)]

    def _finals(self, builder: SourceBuilder) -> tuple[events.Leader, ...]:
        """Time the leaders on the first device, interleaved with the baselines, and store each result."""
        finalists = self._finalists()
        if not finalists:
            return self._screened()
        self.on_event(events.Finals(tuple(r.candidate.id for r in finalists)))
        entries = [(r.candidate, builder.build(r.candidate.source)) for r in finalists]
        seconds, most = self.time_budget.finals(len(entries)), self.time_budget.finals_end(len(entries))
        if finalists[0].candidate.control:  # nothing is chosen by its time
            seconds = min(seconds, LEAST_FINAL_SECONDS)
        timing = self.devices.beside(lambda device: device.finals(entries, seconds=seconds, most=most))
        screened = [median_ms(t) for t in self.baselines.get(self.devices.first.device, ())]
        last = CUT_SECONDS + CUT_CALLS * sum([*screened, *(r.ms for r in finalists)]) / 1e3
        try:
            timings = timing.result(None if most == math.inf else most + last)
        except TimeoutError:
            if not timing.done():
                self._notice("the time is up: the finals are cut, and the table shows what was screened")
                return self._screened()
            raise
        self.database.add_timings(self.sweep, self.devices.first.environment.id, self.request.accuracy, timings)
        by_id = {r.candidate.id: r for r in finalists}
        baselines = [t for t in timings if t.subject not in by_id]
        candidates = [t for t in timings if t.subject in by_id]
        if not baselines or not candidates:
            return self._screened()
        leaders = _ranked(candidates, baselines, by_id)
        beside = {leader.name: leader.median_ms for leader in leaders if leader.candidate is None}
        for leader in leaders:
            if leader.candidate:
                self.database.set_result(
                    self.sweep,
                    leader.candidate,
                    median_ms=leader.median_ms,
                    speedup=leader.speedup,
                    speedup_low=leader.speedup_low,
                    speedup_high=leader.speedup_high,
                    baselines=beside,
                    baseline=next(iter(beside)),
                    error_ratio=leader.error_ratio,
                    tie=leader.tie,
                )
        return leaders

    def _screened(self) -> tuple[events.Leader, ...]:
        """The leaders by screening alone. They have no interval, because screenings are not interleaved."""
        medians = {t.subject: median_ms(t) for timings in self.baselines.values() for t in timings}
        fastest = min(medians.values(), default=None)
        rows = [
            _leader(r, r.ms, r.speedup and r.speedup.mid, None, False)
            for r in heapq.nsmallest(FINALISTS, self.right, key=_by_ms)
        ]
        rows += [_baseline(name, ms, fastest / ms if fastest else None, None) for name, ms in medians.items()]
        return tuple(sorted(rows, key=lambda row: row.median_ms))


def _ahead(jobs: int, at_once: int, device_type: str) -> int:
    """The number of candidates in flight: those in judgement, as many that are built, and some in the compilers.

    With more of them, a learning search would ask for many points before its first answer.
    """
    return 2 * at_once + min(jobs, KINDS[device_type].builds_ahead * at_once)


def _by_ms(right: _Right) -> float:
    return right.ms


def _fastest(right: Sequence[_Right]) -> list[_Right]:
    """The fastest candidates with a kernel of their own, those launched in another way, and the fastest controls."""
    own, controls = ([r for r in right if r.candidate.control is of] for of in (False, True))
    kinds = *([r for r in own if launching.is_other(r.candidate) is of] for of in (False, True)), controls
    return [r for kind in kinds for r in heapq.nsmallest(FINALISTS, kind, key=_by_ms)]


def _ranked(
    candidates: list[Timing], baselines: list[Timing], by_id: dict[str, _Right]
) -> tuple[events.Leader, ...]:
    """Finalists, then baselines, each from the best down, with speedups over the fastest baseline."""

    def tie_break(timing: Timing) -> tuple[int, int, str]:
        candidate = by_id[timing.subject].candidate
        return candidate.kernels, candidate.source_lines, candidate.id

    fastest = statistics.fastest(baselines)
    rows = []
    for rank in statistics.leaders(candidates, tie_break):
        found = statistics.standing(fastest, rank.timing)
        rows.append(_leader(by_id[rank.timing.subject], found.ms, found.speedup.mid, found.speedup, rank.tie))
    standings = [statistics.standing(fastest, timing) for timing in baselines]
    for found in sorted(standings, key=lambda found: (found.timing is not fastest, found.ms)):
        rows.append(_baseline(found.timing.subject, found.ms, found.speedup.mid, found.speedup))
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
        plan_data=candidate.plan_data,
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
