"""The evaluators of a sweep: one for each device, started at once, with threads that call them.

    with DevicePool([Evaluator(problem, device="cuda:0", ...), Evaluator(problem, device="cuda:1", ...)]) as devices:
        devices.wait()
        result = devices.submit(lambda evaluator: evaluator.evaluate(candidate, build)).result()

Each evaluator judges ``at_once`` candidates side by side; timings on one device take turns.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import PriorityQueue, SimpleQueue
from typing import Callable, Protocol, Sequence, TypeVar

from kgen.candidate import Candidate
from kgen.errors import DeviceError, EvaluatorError
from kgen.evaluator.protocol import Accuracy, BuildReport, Environment, Evaluation, Health, Timing
from kgen.hardware import Hardware
from kgen.problem import Problem


Result = TypeVar("Result")


class DeviceLost(EvaluatorError):
    """A device is gone with the work that it had; another device may do that work."""


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
    """An evaluation, its device, and the baselines as they were timed there; ``None`` where every device was lost."""

    evaluation: Evaluation
    device: str | None
    baselines: tuple[Timing, ...]


@dataclass(order=True)
class _Waiting:
    """Work that waits for a device; lower places go first."""

    place: tuple[int, int]
    work: Callable[[DeviceEvaluator], Evaluation] = field(compare=False)
    future: Future[DeviceResult] = field(compare=False, default_factory=Future)


@dataclass(frozen=True)
class _Slot:
    """The right to call one evaluator. It ends with this ``life`` of the evaluator."""

    number: int
    life: int


class DevicePool:
    """Evaluators of several equal devices. A context manager: leaving ends every process that was started.

    Entering starts all evaluators without waiting; call :meth:`wait` before any other method. A device that raises
    :class:`DeviceLost` is started again. In an ``elastic`` pool, work begins with the first device that is ready. There, a
    device that does not start is left out with a notice. ``name`` stands for all devices, ``jobs`` builds go on at once.
    """

    def __init__(
        self,
        evaluators: Sequence[DeviceEvaluator],
        *,
        elastic: bool = False,
        name: str = "",
        jobs: int = 0,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.evaluators = tuple(evaluators)
        self.name = name or ",".join(evaluator.device for evaluator in self.evaluators)
        self.jobs = jobs or max(1, len(os.sched_getaffinity(0)))
        self._elastic = elastic
        self._notice = notice
        self._starters = ThreadPoolExecutor(len(self.evaluators) + 1, thread_name_prefix="kgen-start")
        self._changed = threading.Condition()
        self._ready: set[int] = set()
        self._lives = [0] * len(self.evaluators)
        self._failed: dict[int, BaseException] = {}  # by number: why a device is left out
        self._first: DeviceEvaluator | None = None  # that got ready: the others are compared with it
        self._working = Counter[int]()  # by number: how many candidates it judges
        self._free: SimpleQueue[_Slot | None] = SimpleQueue()  # None: there are no devices any more
        self._waiting: PriorityQueue[_Waiting] = PriorityQueue()
        self._numbers = itertools.count()
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> DevicePool:
        for number in range(len(self.evaluators)):
            self._starters.submit(self._start, number)
        return self

    def __exit__(self, *_: object) -> None:
        """End every process and every thread; evaluations that run are given up."""
        for evaluator in self.evaluators:
            evaluator.close()
        self._free.put(None)
        for threads in filter(None, (self._starters, self._threads)):
            threads.shutdown(cancel_futures=True)

    def wait(self) -> None:
        """Wait until all evaluators have started, or in an elastic pool the first one.

        Raises what one of them raises, and :class:`DeviceError` for different devices, whose times do not compare.
        """
        count = len(self.evaluators)

        def settled() -> bool:
            enough = self._ready if self._elastic else self._failed
            return bool(enough) or len(self._ready) + len(self._failed) == count

        with self._changed:
            self._changed.wait_for(settled)
            if self._failed and not (self._elastic and self._ready):
                raise self._failed[min(self._failed)]
        self._threads = ThreadPoolExecutor(self.at_once, thread_name_prefix="kgen-evaluate")

    @property
    def first(self) -> DeviceEvaluator:
        """The evaluator whose device gets builds and finals."""
        with self._changed:
            return self.evaluators[min(self._ready)] if self._ready else self._first or self.evaluators[0]

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
            return tuple(self.evaluators[number].device for number in sorted(self._ready))

    def beside(self, work: Callable[[DeviceEvaluator], Result]) -> Future[Result]:
        """:meth:`on_first`, in a thread."""
        return self._starters.submit(self.on_first, work)

    def on_first(self, work: Callable[[DeviceEvaluator], Result]) -> Result:
        """Call ``work`` with the first device, and with another one where it is lost."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or len(self._failed) == len(self.evaluators))
                if not self._ready:
                    raise self._failed[min(self._failed)]
                slot = _Slot(number := min(self._ready), self._lives[number])
            try:
                return work(self.evaluators[slot.number])
            except DeviceLost:
                self._lose(slot)

    def submit(self, work: Callable[[DeviceEvaluator], Evaluation], place: int = 0) -> Future[DeviceResult]:
        """Call ``work`` with the evaluator that is free next. Lower ``place`` goes first, then the order submitted.

        The future raises :class:`DeviceLost` where the device is lost meanwhile.
        """
        assert self._threads is not None
        waiting = _Waiting((place, next(self._numbers)), work)
        self._waiting.put(waiting)
        self._threads.submit(self._work_next)
        return waiting.future

    def _start(self, number: int) -> None:
        """Start an evaluator, and give out its slots."""
        evaluator = self.evaluators[number]
        try:
            evaluator.start()
            with self._changed:
                self._first = first = self._first or evaluator
            if evaluator.environment.id != first.environment.id:
                raise _different(first, evaluator) if evaluator.device > first.device else _different(evaluator, first)
        except BaseException as error:
            self._leave_out(number, error)
            return
        with self._changed:
            self._lives[number] += 1
            self._ready.add(number)
            self._changed.notify_all()
        for _ in range(evaluator.at_once):
            self._free.put(_Slot(number, self._lives[number]))

    def _leave_out(self, number: int, error: BaseException) -> None:
        with self._changed:
            self._failed[number] = error
            self._changed.notify_all()
            none_left = len(self._failed) == len(self.evaluators)
        if none_left:
            self._free.put(None)
        elif self._elastic:
            self._notice(f"{self.evaluators[number].device} is left out: {error}")

    def _lose(self, slot: _Slot) -> None:
        """Start a lost evaluator again, once for each loss."""
        with self._changed:
            if slot.number not in self._ready or self._lives[slot.number] != slot.life:
                return
            self._ready.remove(slot.number)
        with contextlib.suppress(RuntimeError):  # the pool is closed
            self._starters.submit(self._start, slot.number)

    def _work_next(self) -> None:
        slot = self._free.get()
        while slot is not None and (self._lives[slot.number] != slot.life or slot.number not in self._ready):
            slot = self._free.get()
        waiting = self._waiting.get()
        if slot is None:
            self._free.put(None)  # for the next one
            if waiting.future.set_running_or_notify_cancel():
                waiting.future.set_exception(next(iter(self._failed.values()), EvaluatorError("the devices are closed")))
            return
        if waiting.future.set_running_or_notify_cancel():
            self._work(slot, waiting)
        self._free.put(slot)

    def _work(self, slot: _Slot, waiting: _Waiting) -> None:
        evaluator = self.evaluators[slot.number]
        self._count(slot, 1)
        try:
            result = DeviceResult(waiting.work(evaluator), evaluator.device, evaluator.baselines())
        except BaseException as error:
            if isinstance(error, DeviceLost):
                self._lose(slot)
            waiting.future.set_exception(error)
        else:
            waiting.future.set_result(result)
        finally:
            self._count(slot, -1)

    def _count(self, slot: _Slot, change: int) -> None:
        with self._changed:
            self._working[slot.number] += change


def _different(first: DeviceEvaluator, other: DeviceEvaluator) -> DeviceError:
    return DeviceError(
        f"{first.device} is {_described(first.environment)}; {other.device} is {_described(other.environment)}: "
        "results of different devices are never compared; sweep on each of them alone"
    )


def _described(environment: Environment) -> str:
    return ", ".join(filter(None, (environment.device, environment.arch, environment.driver)))
