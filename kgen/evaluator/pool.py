"""The evaluators of a sweep: one for each device, started at once, with threads that call them.

    with DevicePool([Evaluator(problem, device="cuda:0", ...), Evaluator(problem, device="cuda:1", ...)]) as devices:
        devices.wait()
        result = devices.submit(lambda evaluator: evaluator.evaluate(candidate, build)).result()

Each evaluator judges ``at_once`` candidates side by side; timings on one device take turns.
"""

from __future__ import annotations

import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import PriorityQueue, SimpleQueue
from typing import Callable, Protocol, Sequence

from kgen.candidate import Candidate
from kgen.errors import DeviceError
from kgen.evaluator.protocol import Accuracy, BuildReport, Environment, Evaluation, Health, Timing
from kgen.hardware import Hardware
from kgen.problem import Problem


class SourceBuilder(Protocol):
    """Builds candidates ahead of their evaluation; see :class:`kgen.evaluator.build.Builder`."""

    def build(self, source: str) -> BuildReport: ...


class DeviceEvaluator(Protocol):
    """The evaluator of one device, as a sweep sees it; see :class:`kgen.evaluator.evaluator.Evaluator`."""

    device: str
    accuracy: Accuracy
    problem: Problem
    environment: Environment
    hardware: Hardware

    @property
    def at_once(self) -> int: ...

    def start(self) -> None: ...

    def close(self) -> None: ...

    def builder(self) -> SourceBuilder: ...

    def health(self) -> Health: ...

    def evaluate(self, candidate: Candidate, build: BuildReport) -> Evaluation: ...

    def baselines(self) -> tuple[Timing, ...]: ...

    def finals(self, candidates: Sequence[tuple[Candidate, BuildReport]], *, seconds: float) -> tuple[Timing, ...]: ...


@dataclass(frozen=True)
class DeviceResult:
    """An evaluation, its device, and the baselines as they were timed there."""

    evaluation: Evaluation
    device: str
    baselines: tuple[Timing, ...]


@dataclass(order=True)
class _Waiting:
    """Work that waits for a device; lower places go first."""

    place: tuple[int, int]
    work: Callable[[DeviceEvaluator], Evaluation] = field(compare=False)
    future: Future[DeviceResult] = field(compare=False, default_factory=Future)


class DevicePool:
    """Evaluators of several equal devices. A context manager: leaving ends every process that was started.

    Entering starts all evaluators without waiting; call :meth:`wait` before any other method.
    """

    def __init__(self, evaluators: Sequence[DeviceEvaluator]) -> None:
        self.evaluators = tuple(evaluators)
        self._starters = ThreadPoolExecutor(len(self.evaluators), thread_name_prefix="kgen-start")
        self._starting: list[Future[None]] = []
        self._free: SimpleQueue[DeviceEvaluator] = SimpleQueue()
        self._waiting: PriorityQueue[_Waiting] = PriorityQueue()
        self._numbers = itertools.count()
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> DevicePool:
        self._starting = [self._starters.submit(evaluator.start) for evaluator in self.evaluators]
        return self

    def __exit__(self, *_: object) -> None:
        """End every process and every thread; evaluations that run are given up."""
        for evaluator in self.evaluators:
            evaluator.close()
        for threads in filter(None, (self._starters, self._threads)):
            threads.shutdown(cancel_futures=True)

    def wait(self) -> None:
        """Wait until all evaluators have started.

        Raises what one of them raises, and :class:`DeviceError` for different devices, whose times do not compare.
        """
        for starting in self._starting:
            starting.result()
        first = self.first.environment
        for evaluator in self.evaluators[1:]:
            if evaluator.environment.id != first.id:
                raise DeviceError(
                    f"{self.first.device} is {_described(first)}; {evaluator.device} is {_described(evaluator.environment)}: "
                    "results of different devices are never compared; sweep on each of them alone"
                )
        self._threads = ThreadPoolExecutor(self.at_once, thread_name_prefix="kgen-evaluate")
        for evaluator in self.evaluators:
            for _ in range(evaluator.at_once):
                self._free.put(evaluator)

    @property
    def first(self) -> DeviceEvaluator:
        """The evaluator whose device gets builds and finals."""
        return self.evaluators[0]

    @property
    def at_once(self) -> int:
        """How many candidates are judged at once, on all devices together."""
        return sum(evaluator.at_once for evaluator in self.evaluators)

    def health(self) -> Future[Health]:
        """Whether the problem's tolerance tells right from wrong, found out in a thread."""
        return self._starters.submit(self.first.health)

    def submit(self, work: Callable[[DeviceEvaluator], Evaluation], place: int = 0) -> Future[DeviceResult]:
        """Call ``work`` with the evaluator that is free next. Lower ``place`` goes first, then the order submitted."""
        assert self._threads is not None
        waiting = _Waiting((place, next(self._numbers)), work)
        self._waiting.put(waiting)
        self._threads.submit(self._work_next)
        return waiting.future

    def _work_next(self) -> None:
        evaluator = self._free.get()
        try:
            waiting = self._waiting.get()
            if not waiting.future.set_running_or_notify_cancel():
                return
            try:
                result = DeviceResult(waiting.work(evaluator), evaluator.device, evaluator.baselines())
            except BaseException as error:
                waiting.future.set_exception(error)
            else:
                waiting.future.set_result(result)
        finally:
            self._free.put(evaluator)


def _described(environment: Environment) -> str:
    return ", ".join(filter(None, (environment.device, environment.arch, environment.driver)))
