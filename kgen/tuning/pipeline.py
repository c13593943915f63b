"""Candidates on their way: built ahead, told from those that compile to the same, judged on the device that is free.

    put(candidate) -> [build pool] -> duplicate of one that is right? -> [devices] -> next() -> verdict

Of candidates that wait for a device, the one that was put first is judged first, so that a build that takes long does
not have what is most promising come last. Verdicts come in the order in which candidates are done with. Of candidates
that compile to the same and run it the same way, one is judged; the others wait for it, and are its duplicates if it is
right.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Callable

from kgen import syntax
from kgen.candidate import SHORT, Candidate
from kgen.evaluator.pool import DeviceEvaluator, DevicePool, DeviceResult, SourceBuilder
from kgen.evaluator.protocol import BuildReport, Evaluation, Status, Timing

_SAME_AS = "the same machine code as "  #: what the reason of a duplicate begins with


@dataclass(frozen=True)
class Verdict:
    """What became of a candidate, and on which device (``None`` where none was needed) beside which baselines.

    ``found`` marks an evaluation that was known before.
    """

    candidate: Candidate
    evaluation: Evaluation
    device: str | None = None
    baselines: tuple[Timing, ...] = ()
    found: bool = False


@dataclass(eq=False)
class _Item:
    """A candidate on its way, the ``place``-th that was put. ``known`` is an evaluation that was found; ``substance`` is
    what it compiles to."""

    candidate: Candidate
    place: int
    known: Evaluation | None = None
    build: BuildReport | None = None
    substance: str | None = None
    future: "Future[Any] | None" = None


class Pipeline:
    """Builds candidates, ``jobs`` at once, and has ``devices`` judge them. To be used by one thread, in which
    ``on_built`` is told of builds as they end."""

    def __init__(
        self,
        builder: SourceBuilder,
        devices: DevicePool,
        jobs: int,
        on_built: Callable[[Candidate, BuildReport], None] = lambda candidate, build: None,
    ) -> None:
        self._devices = devices
        self._builder = builder
        self._builds = ThreadPoolExecutor(jobs, thread_name_prefix="kgen-build")
        self._on_built = on_built
        self._ended: SimpleQueue[_Item] = SimpleQueue()  # items whose future is done
        self._building: set[_Item] = set()
        self._judging: set[_Item] = set()
        self._held: dict[str, list[_Item]] = {}  # by what is being judged: others that compile to the same
        self._right: dict[str, str] = {}  # what a candidate that is right compiles to -> its id
        self._done: deque[Verdict] = deque()
        self._places = itertools.count()

    def put(self, candidate: Candidate, known: Evaluation | None = None) -> None:
        """Send a candidate on its way. Where its evaluation is ``known``, that is its verdict."""
        item = _Item(candidate, next(self._places), known)
        if known is not None:
            self._put_known(item, known)
            return
        self._building.add(item)
        self._follow(item, self._builds.submit(self._builder.build, candidate.source))

    def _put_known(self, item: _Item, known: Evaluation) -> None:
        if known.status is not Status.OK:
            self._done.append(Verdict(item.candidate, known, found=True))
            return
        compiled = substance(item.candidate, known.build) if known.build else None
        if compiled is not None:
            self._right.setdefault(compiled, item.candidate.id)
        self._judge(item)  # for the baselines beside it

    def next(self) -> Verdict | None:
        """Wait for the next verdict; ``None`` when no candidate is on its way. Raises what a build or a device raises
        that is no candidate's fault."""
        while not self._done and (self._building or self._judging):
            item = self._ended.get()
            assert item.future is not None
            if item.future.cancelled():
                continue
            if item in self._building:
                self._building.remove(item)
                self._built(item, item.future.result())
            elif item in self._judging:
                self._judging.remove(item)
                self._judged(item, item.future.result())
        return self._done.popleft() if self._done else None

    def give_up(self) -> None:
        """Drop every candidate that is not being judged by now."""
        self._builds.shutdown(wait=False, cancel_futures=True)
        self._building.clear()
        self._held = {substance: [] for substance in self._held}
        self._judging = {item for item in self._judging if item.future is not None and not item.future.cancel()}

    def close(self) -> None:
        """Begin nothing any more. Builds that run go on until their processes are ended."""
        self._builds.shutdown(wait=False, cancel_futures=True)

    def _follow(self, item: _Item, future: Future[Any]) -> None:
        item.future = future
        future.add_done_callback(lambda _: self._ended.put(item))

    def _built(self, item: _Item, build: BuildReport) -> None:
        item.build = build
        self._on_built(item.candidate, build)
        item.substance = substance(item.candidate, build)
        self._judge_once(item)

    def _judge_once(self, item: _Item) -> None:
        """Have a candidate judged, unless another one is, or is right, that compiles to the same."""
        twin = self._right.get(item.substance or "")
        if twin is not None:
            self._done.append(Verdict(item.candidate, _duplicate(item, twin, self._devices.first)))
        elif item.substance in self._held:
            self._held[item.substance].append(item)
        else:
            if item.substance is not None:
                self._held[item.substance] = []
            self._judge(item)

    def _judge(self, item: _Item) -> None:
        self._judging.add(item)
        self._follow(item, self._devices.submit(lambda judge: _evaluated(item, judge), item.place))

    def _judged(self, item: _Item, judged: DeviceResult) -> None:
        found, evaluation = item.known is not None, judged.evaluation
        self._done.append(Verdict(item.candidate, evaluation, judged.device, judged.baselines, found))
        if item.substance is None:
            return
        if evaluation.status is Status.OK:
            self._right[item.substance] = item.candidate.id
        for other in self._held.pop(item.substance):
            self._judge_once(other)


def _evaluated(item: _Item, judge: DeviceEvaluator) -> Evaluation:
    if item.known is not None:
        return item.known
    assert item.build is not None
    return judge.evaluate(item.candidate, item.build)


def _duplicate(item: _Item, twin: str, judge: DeviceEvaluator) -> Evaluation:
    reason = f"{_SAME_AS}{twin[:SHORT]}"
    return Evaluation(item.candidate.id, Status.DUPLICATE, reason, judge.accuracy, build=item.build)


def twin(evaluation: Evaluation) -> str | None:
    """The first characters of the id of the candidate that a duplicate does the same as; ``None`` of what is none."""
    return evaluation.reason.removeprefix(_SAME_AS) if evaluation.status is Status.DUPLICATE else None


def substance(candidate: Candidate, build: BuildReport) -> str | None:
    """What a candidate does, whatever its comments and names say: its machine code and the statements around it.
    ``None`` where nothing was built."""
    if not build.ok or build.binary is None:
        return None
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
