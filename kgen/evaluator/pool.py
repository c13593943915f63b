"""The evaluators of a sweep: one for each device, started at once, with threads that call them.

    with DevicePool([Evaluator(problem, device="cuda:0", ...), Evaluator(problem, device="cuda:1", ...)]) as devices:
        devices.wait()
        result = devices.submit(lambda evaluator: evaluator.evaluate(candidate, build)).result()

Each evaluator judges ``at_once`` candidates side by side; timings on one device take turns.
"""

import contextlib
import itertools
import os
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from queue import PriorityQueue
from typing import Callable, Iterable, Protocol, Sequence, TypeVar

from kgen.candidate import Candidate
from kgen.devices.hardware import Hardware
from kgen.errors import DeviceError, EvaluatorError
from kgen.evaluator.runtime.process import Server
from kgen.problems.problem import Problem
from kgen.protocol import Accuracy, BuildReport, Environment, Evaluation, Health, Layouts, LibraryProduct, Timing

Result = TypeVar("Result")


class DeviceLost(EvaluatorError):
    """A device is gone with the work that it had; another device may do that work."""


class TimeIsUp(Exception):
    """The time of a sweep was up before a candidate was judged to its end: it has no verdict."""


class SourceBuilder(Protocol):
    """Builds candidates ahead of their evaluation; see :class:`kgen.evaluator.candidates.build.Builder`."""

    def build(self, source: str, behind: int = 0) -> BuildReport: ...


class DeviceEvaluator(Protocol):
    """The evaluator of one device, as a sweep sees it; see :class:`kgen.evaluator.evaluator.Evaluator`."""

    device: str
    accuracy: Accuracy
    problem: Problem
    environment: Environment
    hardware: Hardware
    products: Sequence[LibraryProduct]
    layouts: Layouts

    @property
    def at_once(self) -> int: ...
    def start(self) -> None: ...
    def close(self) -> None: ...
    def builder(self) -> SourceBuilder: ...
    def health(self) -> Health: ...
    def evaluate(self, candidate: Candidate, build: BuildReport) -> Evaluation: ...
    def baselines(self) -> tuple[Timing, ...]: ...
    def finals(
        self, candidates: Sequence[tuple[Candidate, BuildReport]], *, seconds: float, most: float = inf
    ) -> tuple[Timing, ...]: ...


@dataclass(frozen=True)
class DeviceResult:
    """An evaluation, its device, and the baselines as they were timed there; ``None`` where every device was lost."""

    evaluation: Evaluation
    device: str | None
    baselines: tuple[Timing, ...]


Work = Callable[[DeviceEvaluator], Evaluation]


class DevicePool:
    """Evaluators of several equal devices. A context manager: leaving ends every process that was started. Entering
    starts all evaluators without waiting; call :meth:`wait` before any other method. A device that raises
    :class:`DeviceLost` is started again. In an ``elastic`` pool, work begins with the first device that is ready.
    There, a device that does not start is left out with a notice. ``name`` stands for all devices, ``jobs`` builds go
    on at once. ``server`` forks processes that execute the problem's code, and ends with the pool."""

    def __init__(
        self,
        evaluators: Sequence[DeviceEvaluator],
        *,
        elastic: bool = False,
        name: str = "",
        jobs: int = 0,
        notice: Callable[[str], None] = lambda text: None,
        server: Server | None = None,
    ) -> None:
        self.evaluators = tuple(evaluators)
        self.server = server
        self.name = name or ",".join(evaluator.device for evaluator in self.evaluators)
        self.jobs = jobs or max(1, len(os.sched_getaffinity(0)))
        self._elastic = elastic
        self._notice = notice
        self._starters = ThreadPoolExecutor(len(self.evaluators) + 1, thread_name_prefix="kgen-start")
        self._changed = threading.Condition()
        self._alive: dict[int, int] = {}  # by number: which of its lives a device has, each until it is lost
        self._failed: dict[int, BaseException] = {}  # by number: why a device is left out
        self._first: DeviceEvaluator | None = None  # first ready device: the others are compared with it
        self._working = Counter[int]()  # by number: how many candidates it judges
        #: Work with its place and number; lower ones go first.
        self._waiting: PriorityQueue[tuple[int, int, Work, Future[DeviceResult]]] = PriorityQueue()
        self._numbers = itertools.count()
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False
        self._entered = False

    def __enter__(self) -> "DevicePool":
        if not self._entered:  # it may have been entered ahead of its user
            self._entered = True
            for number in range(len(self.evaluators)):
                self._starters.submit(self._start, number)
        return self

    def __exit__(self, *_: object) -> None:
        """End every process and every thread; evaluations that run are given up."""
        for evaluator in self.evaluators:
            evaluator.close()
        if self.server is not None:
            self.server.close()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for threads in filter(None, (self._starters, self._threads)):
            threads.shutdown(cancel_futures=True)

    def wait(self) -> None:
        """Wait until all evaluators have started, or in an elastic pool the first one. Raises what one of them raises,
        and :class:`DeviceError` for different devices, whose times do not compare."""
        enough = self._alive if self._elastic else self._failed
        with self._changed:
            self._changed.wait_for(lambda: enough or len(self._alive) + len(self._failed) == len(self.evaluators))
            if self._failed and not (self._elastic and self._alive):
                raise self._failed[min(self._failed)]
        self._threads = ThreadPoolExecutor(self.at_once, thread_name_prefix="kgen-evaluate")

    @property
    def first(self) -> DeviceEvaluator:
        """The evaluator whose device gets builds and finals."""
        with self._changed:
            return self.evaluators[min(self._alive)] if self._alive else self._first or self.evaluators[0]

    @property
    def at_once(self) -> int:
        """How many candidates are judged at once, on all devices together."""
        return sum(evaluator.at_once for evaluator in self.evaluators)

    @property
    def busy(self) -> tuple[str, ...]:
        """The devices that judge candidates now."""
        with self._changed:
            return tuple(self.evaluators[number].device for number, works in self._working.items() if works)

    @property
    def ready(self) -> tuple[str, ...]:
        """The devices that have started and are not lost."""
        with self._changed:
            return tuple(self.evaluators[number].device for number in sorted(self._alive))

    def beside(self, work: Callable[[DeviceEvaluator], Result]) -> Future[Result]:
        """:meth:`on_first`, in a thread."""
        return self._starters.submit(self.on_first, work)

    def on_first(self, work: Callable[[DeviceEvaluator], Result]) -> Result:
        """Call ``work`` with the first device, and with another one where it is lost."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._alive or len(self._failed) == len(self.evaluators))
                if not self._alive:
                    raise self._failed[min(self._failed)]
                number = min(self._alive)
                life = self._alive[number]
            try:
                return work(self.evaluators[number])
            except DeviceLost:
                self._lose(number, life)

    def submit(self, work: Work, place: int = 0) -> Future[DeviceResult]:
        """Call ``work`` with the evaluator that is free next. Lower ``place`` goes first, then the order submitted. The
        future raises :class:`DeviceLost` where the device is lost meanwhile."""
        assert self._threads is not None
        future = Future[DeviceResult]()
        self._waiting.put((place, next(self._numbers), work, future))
        self._threads.submit(self._work_next)
        return future

    def _start(self, number: int) -> None:
        """Start an evaluator, which takes calls from then on."""
        evaluator = self.evaluators[number]
        try:
            evaluator.start()
            with self._changed:
                self._first = first = self._first or evaluator
            if evaluator.environment.id != first.environment.id:
                raise _different([first, evaluator])
        except BaseException as error:
            with self._changed:
                self._failed[number] = error
                self._changed.notify_all()
            if self._elastic and not self._is_over():
                self._notice(f"{evaluator.device} is left out: {error}")
            return
        with self._changed:
            self._alive[number] = next(self._numbers)
            self._changed.notify_all()

    def _is_over(self) -> bool:
        """Whether there will be no device any more."""
        return self._closed or len(self._failed) == len(self.evaluators)

    def _lose(self, number: int, life: int) -> None:
        """Start a lost evaluator again, once for each loss."""
        with self._changed:
            if self._alive.get(number) != life:
                return
            del self._alive[number]
        with contextlib.suppress(RuntimeError):  # the pool is closed
            self._starters.submit(self._start, number)

    def _next_free(self) -> int | None:
        """The device that judges the fewest candidates, if one may judge another."""
        free = [number for number in self._alive if self._working[number] < self.evaluators[number].at_once]
        return min(free, key=lambda number: self._working[number], default=None)

    def _work_next(self) -> None:
        """Have the next free device do the work whose turn it is then."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over() or self._next_free() is not None)
            number = None if self._is_over() else self._next_free()
            *_, work, future = self._waiting.get_nowait()
            if number is not None:
                life = self._alive[number]
                self._working[number] += 1
        is_wanted = future.set_running_or_notify_cancel()
        if number is None:
            if is_wanted:
                future.set_exception(next(iter(self._failed.values()), EvaluatorError("the devices are closed")))
            return
        evaluator = self.evaluators[number]
        try:
            if is_wanted:
                future.set_result(DeviceResult(work(evaluator), evaluator.device, evaluator.baselines()))
        except BaseException as error:
            if isinstance(error, DeviceLost):
                self._lose(number, life)
            future.set_exception(error)
        with self._changed:
            self._working[number] -= 1
            self._changed.notify_all()


def _different(evaluators: Iterable[DeviceEvaluator]) -> DeviceError:
    kinds = ((one.device, one.environment) for one in sorted(evaluators, key=attrgetter("device")))
    described = (
        f"{device} is {', '.join(filter(None, (kind.device, kind.arch, kind.driver)))}" for device, kind in kinds
    )
    return DeviceError(
        f"{'; '.join(described)}: results of different devices are never compared; sweep on each of them alone"
    )
