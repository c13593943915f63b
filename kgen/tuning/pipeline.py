"""Candidates in flight: built ahead, deduplicated by machine code, and judged on the device that is free.

    put(candidate) -> [build pool] -> duplicate of a right one? -> [devices] -> next() -> outcome

Waiting candidates are judged in the order in which they were put, so that a long build does not come last. Verdicts
come in the order in which candidates end. Candidates with equal fingerprints are judged once. The others wait for that
one, and are its duplicates if it is right.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import math
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from queue import Empty, SimpleQueue
from typing import Any, Callable

from kgen.candidate import SHORT, Candidate
from kgen.evaluator.pool import DeviceEvaluator, DeviceLost, DevicePool, DeviceResult, SourceBuilder, TimeIsUp
from kgen.problems import syntax
from kgen.protocol import BuildReport, Evaluation, Status, Timing

_MOST_LOSSES = 5  # devices that a candidate may lose; three losses by chance were seen where kills were frequent
_SAME_AS = "the same machine code as "  # prefix of the reason of a duplicate


@dataclass(frozen=True)
class Outcome:
    """The evaluation of a candidate, with the device and the baselines of that device.

    ``device`` is ``None`` where no device was needed. ``found`` marks an evaluation that was known before.
    """

    candidate: Candidate
    evaluation: Evaluation
    device: str | None = None
    baselines: tuple[Timing, ...] = ()
    found: bool = False


@dataclass(eq=False)
class _Item:
    """A candidate in flight. ``place`` counts the candidates that were put, and ``known`` is a stored evaluation."""

    candidate: Candidate
    place: int
    known: Evaluation | None = None
    build: BuildReport | None = None
    fingerprint: str | None = None
    future: "Future[Any] | None" = None
    losses: int = 0  # devices that were lost while they judged it


class Pipeline:
    """Builds up to ``jobs`` candidates at once and judges them on ``devices``.

    One thread may use a pipeline. ``on_built`` is called in that thread when a build ends. With ``own_first``, a
    control, which has nothing to build, waits for the first other candidate that is built.
    """

    def __init__(
        self,
        builder: SourceBuilder,
        devices: DevicePool,
        jobs: int,
        on_built: Callable[[Candidate, BuildReport], None] = lambda candidate, build: None,
        is_late: Callable[[], bool] = lambda: False,
        own_first: bool = False,
    ) -> None:
        self._devices = devices
        self._builder = builder
        self._builds = ThreadPoolExecutor(jobs, thread_name_prefix="kgen-build")
        self._on_built = on_built
        self._is_late = is_late  # asked in a device's thread: whether no candidate is to begin any more
        self._own_first = own_first
        self._waiting: list[_Item] = []  # controls that wait for another candidate
        self._any_judged = threading.Event()
        self._ended: SimpleQueue[_Item] = SimpleQueue()  # items whose future is done
        self._building: set[_Item] = set()
        self._judging: set[_Item] = set()
        self._held: dict[str, list[_Item]] = {}  # by the fingerprint that is being judged: the candidates that wait
        self._right: dict[str, str] = {}  # fingerprint of a right candidate -> its id
        self._done: deque[Outcome] = deque()
        self._places = itertools.count()
        self._given_up = False
        self._cut: set[_Item] = set()  # begun, and without a verdict, since the time is up

    def put(self, candidate: Candidate, known: Evaluation | None = None) -> None:
        """Add a candidate. A ``known`` evaluation becomes its outcome. After :meth:`give_up`, others are dropped."""
        item = _Item(candidate, next(self._places), known)
        if known is not None:
            self._put_known(item, known)
            return
        if self._given_up:
            return
        behind = sum(not other.candidate.control for other in self._building)
        self._building.add(item)
        self._follow(item, self._builds.submit(self._builder.build, candidate.source, behind))

    def _put_known(self, item: _Item, known: Evaluation) -> None:
        if known.status is not Status.OK:
            self._done.append(Outcome(item.candidate, known, found=True))
            return
        known_fingerprint = fingerprint(item.candidate, known.build) if known.build else None
        if known_fingerprint is not None:
            self._right.setdefault(known_fingerprint, item.candidate.id)
        self._judge(item)  # the outcome needs the baselines of a device

    def next(self, until: float = math.inf) -> Outcome | None:
        """Wait for the next outcome; ``None`` when no candidate is in flight, or at ``until`` on the monotonic clock.

        Raises the errors of builds and devices that are no candidate's fault.
        """
        while not self._done and (self._building or self._judging):
            try:
                item = self._ended.get(timeout=None if until == math.inf else max(0.0, until - time.monotonic()))
            except Empty:
                return None
            assert item.future is not None
            future, item.future = (
                item.future,
                None,
            )  # the future has a callback with the item: the cycle would keep both
            if future.cancelled():
                continue
            if item in self._building:
                self._building.remove(item)
                self._built(item, future.result())
            elif item in self._judging:
                self._judging.remove(item)
                self._judgement_ended(item, future)
        return self._done.popleft() if self._done else None

    @property
    def unjudged(self) -> int:
        """How many candidates are being judged, wait for a device, or were cut."""
        return len(self._judging) + len(self._cut)

    def give_up(self) -> None:
        """Drop every candidate that is not being judged yet, and those that come later."""
        self._given_up = True
        self._builds.shutdown(wait=False, cancel_futures=True)
        self._building.clear()
        self._held = {judged: [] for judged in self._held}
        self._judging = {item for item in self._judging if item.future is not None and not item.future.cancel()}

    def close(self) -> None:
        """Start no more builds. Running builds continue until their processes end."""
        self._builds.shutdown(wait=False, cancel_futures=True)

    def _follow(self, item: _Item, future: Future[Any]) -> None:
        item.future = future
        future.add_done_callback(lambda _: self._ended.put(item))

    def _built(self, item: _Item, build: BuildReport) -> None:
        item.build = build
        self._on_built(item.candidate, build)
        item.fingerprint = fingerprint(item.candidate, build)
        if self._own_first and item.candidate.control and self._building:
            self._waiting.append(item)
            return
        self._judge_once(item)
        if not item.candidate.control or not self._building:
            self._own_first, waiting, self._waiting = False, self._waiting, []
            for control in waiting:
                control.place = next(self._places)
                self._judge_once(control)

    def _judge_once(self, item: _Item) -> None:
        """Judge a candidate, unless one with the same fingerprint is right or is being judged."""
        original = self._right.get(item.fingerprint or "")
        if original is not None:
            self._done.append(Outcome(item.candidate, _duplicate(item, original, self._devices.first)))
        elif item.fingerprint in self._held:
            self._held[item.fingerprint].append(item)
        else:
            if item.fingerprint is not None:
                self._held[item.fingerprint] = []
            self._judge(item)

    def _judge(self, item: _Item) -> None:
        self._judging.add(item)
        self._follow(item, self._devices.submit(lambda judge: self._evaluated(item, judge), item.place))

    def _evaluated(self, item: _Item, judge: DeviceEvaluator) -> Evaluation:
        """The evaluation of a candidate, in a device's thread. Raises :class:`TimeIsUp` if it is too late to begin
        one."""
        if item.known is not None:
            return item.known
        if self._any_judged.is_set() and self._is_late():
            raise TimeIsUp
        assert item.build is not None
        try:
            evaluation = judge.evaluate(item.candidate, item.build)
        except TimeIsUp:
            self._cut.add(item)
            raise
        if not item.candidate.control:  # at least one other candidate is tried
            self._any_judged.set()
        return evaluation

    def _judgement_ended(self, item: _Item, future: Future[DeviceResult]) -> None:
        """Take the result of a judgement. A candidate whose device was lost goes to another device."""
        error = future.exception()
        if isinstance(error, TimeIsUp):
            return
        if not isinstance(error, DeviceLost):
            self._judged(item, future.result())
            return
        item.losses += 1
        if item.losses < _MOST_LOSSES:
            self._judge(item)
        else:
            accuracy, reason = (
                self._devices.first.accuracy,
                f"{item.losses} devices were lost while they judged it: {error}",
            )
            evaluation = Evaluation(item.candidate.id, Status.INFRA_ERROR, reason, accuracy, build=item.build)
            self._judged(item, DeviceResult(evaluation, None, ()))

    def _judged(self, item: _Item, judged: DeviceResult) -> None:
        found, evaluation = item.known is not None, judged.evaluation
        self._done.append(Outcome(item.candidate, evaluation, judged.device, judged.baselines, found))
        if item.fingerprint is None:
            return
        if evaluation.status is Status.OK:
            self._right[item.fingerprint] = item.candidate.id
        for other in self._held.pop(item.fingerprint):
            self._judge_once(other)


def _duplicate(item: _Item, original: str, judge: DeviceEvaluator) -> Evaluation:
    reason = f"{_SAME_AS}{original[:SHORT]}"
    return Evaluation(item.candidate.id, Status.DUPLICATE, reason, judge.accuracy, build=item.build)


def original(evaluation: Evaluation) -> str | None:
    """The first characters of the id of a duplicate's original; ``None`` for another evaluation."""
    return evaluation.reason.removeprefix(_SAME_AS) if evaluation.status is Status.DUPLICATE else None


def fingerprint(candidate: Candidate, build: BuildReport) -> str | None:
    """A hash of a candidate's machine code and the statements around it, without comments and the kernels' names.

    ``None`` where nothing was built.
    """
    if not build.ok or build.binary is None:
        return None
    shared, _ = syntax.parted(candidate.source)
    return hashlib.sha256(f"{build.binary}\0{_around_kernels(shared)}".encode()).hexdigest()


@lru_cache(maxsize=512)
def _around_kernels(text: str) -> str:
    """A hash of the statements around the kernels, without comments."""
    named = {"NAME", "CUDA_SOURCE", "CPP_SOURCE"}
    kept = [
        ast.dump(node)
        for number, node in enumerate(syntax.parse(text).body)
        if not (number == 0 and isinstance(node, ast.Expr))
        and not (isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in named)
    ]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()
