"""A sweep: conducts search, builds, evaluator and store.

    search.ask -> candidate -> [build pool] -> [devices] -> database (committed at once) -> search.tell
    networks: first candidates, then kernel tasks (kgen.tuning.tasks), then candidates put together from them
    leaders -> timed again, interleaved with each other and the baselines -> result

A sweep may be killed at any point. The same command continues it, because every evaluation is in the store.
"""

from __future__ import annotations

import contextlib
import math
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from traceback import format_exception
from typing import Any, Callable, Iterator

from kgen import paths
from kgen.candidate import Candidate
from kgen.codegen import roofline
from kgen.devices.hardware import lacks_instructions
from kgen.devices.kinds import HOST, KINDS, kind_of
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
from kgen.protocol import BuildReport, Status
from kgen.protocol.statistics import median_ms
from kgen.store import Database, queries
from kgen.tuning import attempts, events, launching, leaders, precision, time_budget
from kgen.tuning.capturing import capture_apart
from kgen.tuning.design import Design, without_weight_copies
from kgen.tuning.equal_sweeps import one_at_a_time
from kgen.tuning.health import HealthCheck
from kgen.tuning.judged import Judged
from kgen.tuning.leaders import Right
from kgen.tuning.network import is_network
from kgen.tuning.network_tasks import NetworkTasks, opening
from kgen.tuning.opening import OpenDevices, SweepRequest, open_devices
from kgen.tuning.pipeline import Outcome, Pipeline
from kgen.tuning.search import STRATEGIES, TASKS, Point, Search, chosen
from kgen.tuning.search.assembled import Assembled
from kgen.tuning.search.listed import Listed
from kgen.tuning.tasks.bench import Place
from kgen.tuning.tasks.inside import inside_ms
from kgen.tuning.time_budget import LEAST_FINAL_SECONDS, TimeBudget

HOPELESS_TRIES = 2  # candidates of each plan on average; limit where no plan is predicted to beat the library
KNOWN_PART = 0.125  # share of the budget; limit of warm-start points
KNOWN_OF_EACH = 3  # warm-start points; limit per problem and plan
# The fewest candidates that are put together from tasks. Where the time is too short for them, no task is tuned.
FEWEST_FILES = 4
WHOLE_FILES = 12  # candidates of a network without another budget: its kernels are tuned as tasks
CUT_SECONDS, CUT_CALLS = (
    20.0,
    10,
)  # behind the end of finals, and calls of each subject: their last rounds end; what hangs is cut
LEAST_BUDGET = 2  # candidates: the control and another one
_ERRS = (Status.WRONG_VALUES, Status.WRONG_STATE)  # statuses of a candidate that errs too much
#: Makes the candidates of a problem on devices, until a time on the monotonic clock; :func:`designed`.
Designed = Callable[[Problem, DevicePool, float], Design]


def run(
    request: SweepRequest,
    on_event: events.Listener,
    open_devices: OpenDevices = open_devices,
    design_of: Designed | None = None,
) -> events.Finished:
    """Run a sweep to its end, its budget, or an interrupt.

    Raises :class:`kgen.errors.KgenError` for a fault of the problem, the device, a compiler or the database. The
    failure of a candidate is never raised. ``KeyboardInterrupt`` ends the sweep as interrupted, with its results so
    far.
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
        if not request.weight_copies:
            design = without_weight_copies(design)
        if devices.first.hardware.device_type == HOST.name and (lacking := lacks_instructions(design.problem.dtype)):
            on_event(events.Notice(lacking))
        request = replace(request, accuracy=devices.first.accuracy)  # as it is stored
        return _Sweep(request, database, devices, design, on_event, started).run()


def designed(problem: Problem, devices: DevicePool, until: float = math.inf) -> Design:
    """All candidates of ``problem`` for the first of ``devices``. It is captured while they start, until a time on the
    monotonic clock.

    Raises :class:`kgen.errors.KgenError` for a fault of the problem or of a device.
    """
    capture, kind = partial(capture_apart, server=devices.server, until=until), _kind_of_first(devices)
    try:
        settled, graphs = capture(problem, kind)
    except (ProblemError, EvaluatorError):
        devices.wait()  # raises the problem's own error, if it has one
        raise
    devices.wait()
    first = devices.first
    # Its constructor leaves another mode on the device, or nothing told the kind before.
    if first.problem.modes != settled.modes or first.hardware.device_type != kind:
        _, graphs = capture(first.problem, first.hardware.device_type)
    graphs = precision.measured(graphs.laid_out(first.layouts), first.products)
    return Design(first.problem, graphs, first.hardware, first.accuracy)


def _kind_of_first(devices: DevicePool) -> str:
    """The kind of the devices, as far as a name tells: devices of a cluster say it when they have started."""
    try:
        return kind_of(devices.evaluators[0].device).name
    except KeyError:
        return HOST.name


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
        **({} if request.weight_copies else {"weight_copies": False}),
    }


def _alone(request: SweepRequest, database: Database, notice: Callable[[str], None]) -> AbstractContextManager[None]:
    """Keeps an equal sweep of this machine waiting. A fresh sweep judges everything itself, so that none waits for
    it."""
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


@dataclass
class _Sweep:
    request: SweepRequest
    database: Database
    devices: DevicePool
    design: Design
    on_event: events.Listener
    started: float  # by the monotonic clock
    sweep: str = ""
    unrendered: int = 0  # points that failed to render
    beyond: int = 0  # candidates that may be tried beyond the budget: the fastest one, launched in other ways
    tasks: NetworkTasks | None = None  # of a network
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

    @cached_property
    def judged(self) -> Judged:
        """The candidates that are judged, once the sweep is open."""
        environment = self.devices.first.environment.id
        return Judged(
            self.database, self.sweep, self.request, self.problem.id, environment, self.time_budget, self.on_event,
            lambda candidate: self.tasks and self.tasks.steps(self.points[candidate.id]),
        )  # fmt: skip

    @cached_property
    def health(self) -> HealthCheck:
        return HealthCheck(self.problem, self.devices, self.database, self._notice)

    def run(self) -> events.Finished:
        jobs = self.request.jobs or self.devices.jobs
        builder = self.devices.first.builder()
        beside = KINDS[
            self.design.hardware.device_type
        ].accelerator  # builds take longer there than to judge the control
        pipeline = Pipeline(builder, self.devices, jobs, self._built, self._is_late, own_first=not beside)
        self._open()
        try:
            self._begin()
            self._search(pipeline, builder, jobs)
            self._judge_other_launches(pipeline)
            found = self._finals(builder)
            self.health.ask()
            self.health.keep(self.time_budget.finals_until, wait=True, may_cut=bool(self.request.seconds))
            return self._finish("finished", found)
        except KeyboardInterrupt:
            return self._finish("interrupted", leaders.screened(self.judged.right, self.judged.baselines))
        except DatabaseBusyError:
            raise  # the sweep stays unfinished in the store, so that the same command continues it
        except Exception as error:
            with contextlib.suppress(DatabaseError, DiskError):
                self._fail(error)
            raise
        finally:
            pipeline.close()

    def _finish(self, state: str, found: tuple[events.Leader, ...]) -> events.Finished:
        """End the sweep in the store, and report it."""
        seconds = time.monotonic() - self.started
        best = next((x.candidate for x in found if x.candidate and not x.control), None)
        self.database.finish_sweep(self.sweep, state, seconds, best)
        beats = any(x.candidate == best and (x.speedup_low or 0.0) > 1.0 for x in found) if best else False
        finished = events.Finished(
            self.sweep, state, seconds, tuple((str(k), v) for k, v in self.judged.counts.items()), found, best, beats
        )
        self.on_event(finished)
        return finished

    def _fail(self, error: Exception) -> None:
        """End the sweep as failed. A refused problem leaves no sweep behind."""
        if isinstance(error, InputError) and not self.judged.number and not self.judged.stored:
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
            found = self.database.unfinished_sweep(
                self.problem.id, environment.id, self.request.accuracy, asked, self.request.kind
            )
        if found:
            self.database.reopen_sweep(found)
            self.sweep = found
            self.judged.stored = self.database.evaluated(found)
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
                roofline=_basis(self.design).plain(),
                products=self.devices.first.products,
            )

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
                found_done=len(self.judged.stored),
                db=self.database.name,
                seconds=self.request.seconds,
            )
        )
        if KINDS[self.design.hardware.device_type].accelerator:
            self.health.ask()

    # ---- the loop ------------------------------------------------------------------------------------------

    def _is_late(self) -> bool:
        """Whether it is too late to begin a candidate; asked in a device's thread."""
        return self.time_budget.is_late() or (self.judged.found_right and self.time_budget.is_cut)

    def _search(self, pipeline: Pipeline, builder: SourceBuilder, jobs: int) -> None:
        """Try candidates until the strategy has no more of them, or the budget or the time is up."""
        ahead = _ahead(jobs, self.devices.at_once, self.design.hardware.device_type)
        kind = STRATEGIES[self.strategy]
        first = [self.design.control]  # judged in every sweep: without a winner, it decides the verdict
        if self.strategy == TASKS and self.place:
            first += opening(self.design)
            listed = Search(Listed(self.design.options, self.request.seed, first), ahead)
            self.tasks = NetworkTasks(
                self.design, self.place, builder, jobs, self.database, self.sweep, self.request.fresh, self.on_event
            )
            judge_first = partial(self._judge_all, pipeline, listed)
            times = self.tasks.option_times(judge_first, lambda: self.time_budget.tasks_until(FEWEST_FILES))
            self.judged.add_late_steps()
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

    def _judge_all(self, pipeline: Pipeline, search: Search) -> None:
        """Ask for candidates, judge them, store each evaluation at once, and tell the search."""
        for point, ms in self.answers.items():
            search.tell_known(point, ms)
        while True:
            found_right = self.judged.found_right
            if (found_right and self.time_budget.is_cut) or self.time_budget.is_over(len(self._finalists()) + 1):
                pipeline.give_up()
            else:
                for point, candidate in self._asked(search):
                    self.points[candidate.id] = point
                    pipeline.put(candidate, self.judged.known(candidate))
            until = self.time_budget.search_until(found_right=found_right)
            outcomes: list[Outcome] = []
            try:
                while (outcome := pipeline.next(-math.inf if outcomes else until)) is not None:
                    outcomes.append(outcome)
            finally:  # an error of one loses no other
                found = self.judged.keep_all(outcomes)
            if not outcomes:
                if pipeline.unjudged:
                    self._notice(f"the time is up: {pipeline.unjudged} candidates are not judged to their end")
                return
            for outcome, ms in zip(outcomes, found):
                point = self.points[outcome.candidate.id]
                self.answers[point] = ms
                inside = inside_ms(outcome.candidate.functions, dict(outcome.evaluation.kernel_ms))
                search.tell(point, ms, refused=outcome.evaluation.status in _ERRS, inside=inside)
            if self.judged.found_right:  # on a CPU, the check needs the cores: first results come first
                self.health.ask()
            self.health.keep()

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
            log = paths.bug_report(
                self.sweep, f"{rejection.plan}\n{dict(rejection.params)}\n{''.join(format_exception(error))}"
            )
            if not self.unrendered:
                self._notice(
                    f"a candidate is left out, since its {error}; this is a bug in kgen: please report it, with {log}"
                )
            self.unrendered += 1
            return None

    def _built(self, candidate: Candidate, build: BuildReport) -> None:
        self.on_event(events.Built(candidate.id, build.ok, build.cached, build.seconds))

    def _notice(self, text: str) -> None:
        self.on_event(events.Notice(text))

    # ---- the finals ----------------------------------------------------------------------------------------

    def _finalists(self) -> list[Right]:
        """The candidates that are timed again, as many as the time allows."""
        close = leaders.close(self.judged.right)
        beside = [median_ms(timing) for timing in self.judged.baselines.get(self.devices.first.device, ())]
        return close[: self.time_budget.finalists([r.ms for r in close], beside)]

    def _finals(self, builder: SourceBuilder) -> tuple[events.Leader, ...]:
        """Time the leaders on the first device, interleaved with the baselines, and store each result."""
        finalists = self._finalists()
        if not finalists:
            return leaders.screened(self.judged.right, self.judged.baselines)
        self.on_event(events.Finals(tuple(r.candidate.id for r in finalists)))
        entries = [(r.candidate, builder.build(r.candidate.source)) for r in finalists]
        seconds, most = self.time_budget.finals(len(entries)), self.time_budget.finals_end(len(entries))
        if finalists[0].candidate.control:  # nothing is chosen by its time
            seconds = min(seconds, LEAST_FINAL_SECONDS)
        timing = self.devices.beside(lambda device: device.finals(entries, seconds=seconds, most=most))
        screened = [median_ms(t) for t in self.judged.baselines.get(self.devices.first.device, ())]
        last = CUT_SECONDS + CUT_CALLS * sum([*screened, *(r.ms for r in finalists)]) / 1e3
        try:
            timings = timing.result(None if most == math.inf else most + last)
        except TimeoutError:
            if not timing.done():
                self._notice("the time is up: the finals are cut, and the table shows what was screened")
                return leaders.screened(self.judged.right, self.judged.baselines)
            raise
        self.database.add_timings(self.sweep, self.devices.first.environment.id, self.request.accuracy, timings)
        by_id = {r.candidate.id: r for r in finalists}
        baselines = [t for t in timings if t.subject not in by_id]
        candidates = [t for t in timings if t.subject in by_id]
        if not baselines or not candidates:
            return leaders.screened(self.judged.right, self.judged.baselines)
        found = leaders.ranked(candidates, baselines, by_id)
        beside = {leader.name: leader.median_ms for leader in found if leader.candidate is None}
        for leader in found:
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
        return found


def _basis(design: Design) -> roofline.Basis:
    """The work of the problem in its first mode, and the measured rates of the device."""
    (_, graph), *_ = design.capture.graphs
    return roofline.Basis(roofline.Work.of(graph), design.hardware.ceilings)


def _ahead(jobs: int, at_once: int, device_type: str) -> int:
    """The number of candidates in flight: those in judgement, as many that are built, and some in the compilers.

    With more of them, a learning search would ask for many points before its first answer.
    """
    return 2 * at_once + min(jobs, KINDS[device_type].builds_ahead * at_once)
