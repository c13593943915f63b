"""The evaluators of a sweep: one for each device, started at once, with threads that have them judge.

    with DevicePool([Evaluator(problem, device="cuda:0", ...), Evaluator(problem, device="cuda:1", ...)]) as devices:
        devices.wait()
        judged = devices.submit(lambda evaluator: evaluator.evaluate(candidate, build)).result()

Each device judges as many candidates at once as its evaluator says; timings on one device take turns all the same.
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
    """What builds candidates ahead of their evaluation; see :class:`kgen.evaluator.build.Builder`."""

    def build(self, source: str) -> BuildReport: ...


class Judge(Protocol):
    """What a sweep needs of the evaluator of one device; see :class:`kgen.evaluator.evaluator.Evaluator`."""

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
class Judged:
    """An evaluation, the device that it was made on, and the baselines as they were timed there."""

    evaluation: Evaluation
    device: str
    baselines: tuple[Timing, ...]


@dataclass(order=True)
class _Waiting:
    """What waits for a device, in the order in which it is to have one."""

    place: tuple[int, int]
    judge: Callable[[Judge], Evaluation] = field(compare=False)
    future: Future[Judged] = field(compare=False, default_factory=Future)


class DevicePool:
    """Judges on several devices that are alike. A context manager: leaving ends every process that was started.

    Entering starts all evaluators and does not wait for them; :meth:`wait` does. Not before it may others be called.
    """

    def __init__(self, evaluators: Sequence[Judge]) -> None:
        self.evaluators = tuple(evaluators)
        self._starters = ThreadPoolExecutor(len(self.evaluators), thread_name_prefix="kgen-start")
        self._starting: list[Future[None]] = []
        self._free: SimpleQueue[Judge] = SimpleQueue()
        self._waiting: PriorityQueue[_Waiting] = PriorityQueue()
        self._numbers = itertools.count()
        self._threads: ThreadPoolExecutor | None = None

    def __enter__(self) -> DevicePool:
        self._starting = [self._starters.submit(evaluator.start) for evaluator in self.evaluators]
        return self

    def __exit__(self, *_: object) -> None:
        """End every process and every thread; what is being judged is given up."""
        for evaluator in self.evaluators:
            evaluator.close()
        for threads in filter(None, (self._starters, self._threads)):
            threads.shutdown(cancel_futures=True)

    def wait(self) -> None:
        """Wait until all evaluators have started.

        Raises what one of them raises, and :class:`DeviceError` where devices are unlike: what one takes says nothing
        of the others.
        """
        for starting in self._starting:
            starting.result()
        first = self.first.environment
        for evaluator in self.evaluators[1:]:
            if evaluator.environment.id != first.id:
                raise DeviceError(
                    f"{self.first.device} is {_described(first)}; {evaluator.device} is {_described(evaluator.environment)}: "
                    "results of unlike devices are never compared; sweep on each of them alone"
                )
        self._threads = ThreadPoolExecutor(self.at_once, thread_name_prefix="kgen-judge")
        for evaluator in self.evaluators:
            for _ in range(evaluator.at_once):
                self._free.put(evaluator)

    @property
    def first(self) -> Judge:
        """The evaluator whose device builds are made for, and finals are timed on."""
        return self.evaluators[0]

    @property
    def at_once(self) -> int:
        """How many candidates are judged at once, on all devices together."""
        return sum(evaluator.at_once for evaluator in self.evaluators)

    def health(self) -> Future[Health]:
        """Whether the problem's gate can tell right from wrong, found out beside everything else."""
        return self._starters.submit(self.first.health)

    def submit(self, judge: Callable[[Judge], Evaluation], place: int = 0) -> Future[Judged]:
        """Have ``judge`` called with the evaluator that is free next: those of the lowest ``place`` first, and among these
        in the order submitted."""
        assert self._threads is not None
        waiting = _Waiting((place, next(self._numbers)), judge)
        self._waiting.put(waiting)
        self._threads.submit(self._judge_next)
        return waiting.future

    def _judge_next(self) -> None:
        evaluator = self._free.get()
        try:
            waiting = self._waiting.get()
            if not waiting.future.set_running_or_notify_cancel():
                return
            try:
                judged = Judged(waiting.judge(evaluator), evaluator.device, evaluator.baselines())
            except BaseException as error:
                waiting.future.set_exception(error)
            else:
                waiting.future.set_result(judged)
        finally:
            self._free.put(evaluator)


def _described(environment: Environment) -> str:
    return ", ".join(filter(None, (environment.device, environment.arch, environment.driver)))
